"""The autoscaler: how many runners each pool gets from demand, its own limits and the slots of its fleet."""
