"""Modules of one room."""
