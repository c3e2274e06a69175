"""What model servers share: talking to an upstream endpoint."""
