"""The behaviours, one module for each part of the contract. The name of a test states what it checks."""
