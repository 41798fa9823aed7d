"""Strategic merge patches of the built-in kinds."""
