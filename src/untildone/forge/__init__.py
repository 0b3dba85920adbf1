"""Forges: where pull requests, CI and reviews live. One file for each, behind `ports.delivery.Forge`."""
