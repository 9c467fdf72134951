"""The behaviours, one module for each part of the contract. Each test is named for the sentence it checks."""
