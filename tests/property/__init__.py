"""Properties of cleaning, on logs that hypothesis makes up."""
