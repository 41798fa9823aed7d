"""From a Pod to a VM and back: observe, decide, act, report."""
