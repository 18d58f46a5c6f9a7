"""Creation of an application's topics as they are declared (`odradek streams init`)."""
