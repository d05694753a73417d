"""Forms of deployments, one a file: command, systemd unit, docker command, compose file, Kubernetes manifest."""
