"""The built-in kinds by API group, with their defaults and validation; their fields are in `shapes.json`."""
