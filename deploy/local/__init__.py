"""The local stack: real Kafka, PostgreSQL and Redis on loopback, without Docker.

    layout      where things are: folders, ports, addresses
    process     start, watch and end programs by process id
    system      the distribution's packages
    probe       is a server answering?
    kafka, postgres, redis_server    one server each
    stack       all of them together; what tests use
    __main__    up, down, status, env

Standard library only: it runs before `.venv/` exists.
"""
