"""The campaign against a whole court: real ``kingdom up`` processes under load, killed at random instants."""
