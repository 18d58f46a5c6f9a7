"""The pages, a module for each entry of the menu: from a request to a template with its values."""
