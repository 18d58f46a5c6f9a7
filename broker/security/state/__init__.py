"""Pure decisions of security: authorization, SASL exchanges, principals, the formats of ACLs and JAAS strings."""
