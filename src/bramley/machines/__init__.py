"""The Cluster API provider: machines on rented Macs. So far: the registration of the runners of builders."""
