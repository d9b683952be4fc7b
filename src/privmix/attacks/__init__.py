"""Attacks on releases and models: audits that prove a lower bound on epsilon, membership, inversion."""
