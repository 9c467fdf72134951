"""What a task of a court needs to be done by a workflow; :mod:`kingdom.workflow.player` puts it together."""
