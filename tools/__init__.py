"""Programs for contributors: checks, tiers, mutants and a real control plane. None of it ships in the package."""
