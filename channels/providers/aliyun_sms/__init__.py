"""Aliyun SMS."""
