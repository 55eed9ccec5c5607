"""Log dirs joined with the segments that a broker has moved away (KIP-405), as Aiven's plugin lays them out."""
