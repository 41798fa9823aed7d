"""The Kubernetes client: one `Client` over two transports, HTTP and in process."""
