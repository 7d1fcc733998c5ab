# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
"""The network of an island whose hosts are network namespaces."""

import itertools
import pathlib
import subprocess

from islands import await_that

HOSTS = 4
# The rate of a link, in 1e6 bits per second.
RATE = 100
# The coordinator's address, and the hosts that reach it.
HUB = "10.90.0.100"
LEADERS = (0, 1)


def call(*command):
    subprocess.run([str(word) for word in command], check=True)


def address(host):
    return f"10.90.0.{host + 1}"


class Network:
    """Namespaces that are joined by links, below this process's own."""

    def __init__(self):
        call("ip", "link", "set", "lo", "up")
        call("ip", "address", "add", HUB + "/32", "dev", "lo")
        self.holders = [subprocess.Popen(["unshare", "--net", "sleep", "1d"])
                        for _ in range(HOSTS)]
        own = pathlib.Path("/proc/self/ns/net").readlink()
        for host, holder in enumerate(self.holders):
            space = pathlib.Path(f"/proc/{holder.pid}/ns/net")
            await_that(lambda: space.readlink() != own, "a namespace")
            self.inside(host, "ip", "link", "set", "lo", "up")
            self.inside(host, "ip", "address", "add", address(host) + "/32",
                        "dev", "lo")
        for link in itertools.combinations(range(HOSTS), 2):
            call("ip", "link", "add", "one", "type", "veth", "peer", "name",
                 "other")
            for name, end, peer in (("one", *link), ("other", *link[::-1])):
                call("ip", "link", "set", name, "netns",
                     self.holders[end].pid, "name", f"to{peer}")
                self.join(end, f"to{peer}", address(peer))
            self.shape(link, RATE)
        for host in LEADERS:
            call("ip", "link", "add", f"island{host}", "type", "veth", "peer",
                 "name", "hub", "netns", self.holders[host].pid)
            call("ip", "link", "set", f"island{host}", "up")
            call("ip", "route", "add", address(host), "dev", f"island{host}",
                 "src", HUB)
            self.join(host, "hub", HUB)

    def within(self, host):
        """Returns the command that runs others on a host."""
        return ["nsenter", f"--net=/proc/{self.holders[host].pid}/ns/net"]

    def inside(self, host, *command):
        call(*self.within(host), *command)

    def join(self, host, device, peer):
        self.inside(host, "ip", "link", "set", device, "up")
        self.inside(host, "ip", "route", "add", peer, "dev", device, "src",
                    address(host))

    def shape(self, link, rate):
        for end, peer in (link, link[::-1]):
            self.inside(end, "tc", "qdisc", "replace", "dev", f"to{peer}",
                        "root", "tbf", "rate", f"{rate}mbit", "burst", "32kb",
                        "latency", "300ms")

    def lose(self, link, share):
        for end, peer in (link, link[::-1]):
            self.inside(end, "iptables", "-w", "-A", "INPUT", "-i",
                        f"to{peer}", "-m", "statistic", "--mode", "random",
                        "--probability", share, "-j", "DROP")

    def heal(self, link):
        for end in link:
            self.inside(end, "iptables", "-w", "-F", "INPUT")
        self.shape(link, RATE)

    def cut_off(self, host):
        """Keeps a host from sending and receiving anything."""
        for chain in ("INPUT", "OUTPUT"):
            self.inside(host, "iptables", "-w", "-A", chain, "-j", "DROP")

    def take_in(self, host):
        self.inside(host, "iptables", "-w", "-F")

    def end(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
