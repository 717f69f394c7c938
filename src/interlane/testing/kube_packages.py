"""What Debian calls the packages that real kubelets need; the Makefile reads it, too."""

PACKAGES = "containerd runc containernetworking-plugins busybox-static iptables iproute2 socat"
