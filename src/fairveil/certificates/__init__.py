"""What can be said of people who were not seen: certificates from a hold-out, and forecasts of them."""
