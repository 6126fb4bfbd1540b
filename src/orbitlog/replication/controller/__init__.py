"""Membership in a group of Apache's controller: identity, requests to the controller, the member's state machine."""
