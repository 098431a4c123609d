"""The plugins: small objects that implement only what they have an opinion on."""
