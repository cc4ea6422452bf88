"""What can go wrong while starting servers.

StackError            one sentence that says what to do
├── MissingPrograms   a distribution package is needed and could not be installed
├── NoKafkaJars       Maven Central did not give Kafka's jars
├── PortTaken         another program listens where a server of ours should
└── NotReady          a server started and did not answer in time, or died
"""


class StackError(Exception):
    """A server of the local stack could not be started, stopped or found."""


class MissingPrograms(StackError):
    pass


class NoKafkaJars(StackError):
    pass


class PortTaken(StackError):
    pass


class NotReady(StackError):
    pass
