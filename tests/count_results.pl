#!/usr/bin/perl
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: count_results.pl EVENTS
#
# Counts the test cases in a build event file (JSON lines) of `bazel test` and
# prints "passed N", "failed N" and "skipped N". The cases are read from the
# test.xml that every test leaves. A target that failed counts as at least one
# failure, whatever its test.xml says: it may have crashed, timed out, found a
# leak, or not have been built. A target that failed once and passed when it ran
# again counts by its last run; standard error names it.

use strict;
use warnings;
use JSON::PP;

my (%is_test, %result_files, %status);
open(my $events, '<', $ARGV[0]) or die "cannot read $ARGV[0]: $!\n";
while (my $line = <$events>) {
  my $event = decode_json($line);
  my $id = $event->{id};
  if ($id->{targetConfigured} && $event->{configured}
      && ($event->{configured}{testSize} // '') ne '') {
    $is_test{$id->{targetConfigured}{label}} = 1;
  } elsif ($id->{testResult}) {
    # A later attempt of the same run and shard replaces an earlier one.
    my $part = ($id->{testResult}{run} // 1) . '/'
      . ($id->{testResult}{shard} // 1);
    for my $file (@{$event->{testResult}{testActionOutput} // []}) {
      next unless $file->{name} eq 'test.xml';
      (my $path = $file->{uri}) =~ s{^file://}{};
      $path =~ s/%([0-9A-Fa-f]{2})/chr hex $1/ge;
      $result_files{$id->{testResult}{label}}{$part} = $path;
    }
  } elsif ($id->{testSummary}) {
    $status{$id->{testSummary}{label}}
      = $event->{testSummary}{overallStatus} // 'NO_STATUS';
  }
}

my %total = (passed => 0, failed => 0, skipped => 0);
for my $label (sort keys %is_test) {
  my %count = (passed => 0, failed => 0, skipped => 0);
  for my $path (values %{$result_files{$label} // {}}) {
    open(my $file, '<', $path) or next;
    local $/;
    my $xml = <$file>;
    $xml =~ s{<!\[CDATA\[.*?\]\]>}{}gs;
    # An element ends at "/>" or at its closing tag; attribute values have no
    # raw ">" in files that GoogleTest and Bazel write.
    while ($xml =~ m{<testcase\b([^>]*?)(?:/>|>(.*?)</testcase>)}gs) {
      my ($attributes, $body) = ($1, $2 // '');
      if ($body =~ /<(?:failure|error)\b/) {
        $count{failed}++;
      } elsif ($attributes =~ /\bstatus="notrun"/ || $body =~ /<skipped\b/) {
        $count{skipped}++;
      } else {
        $count{passed}++;
      }
    }
  }
  my $status = $status{$label} // 'NO_STATUS';
  print STDERR "FLAKY: $label has failed once; its log is above\n"
    if $status eq 'FLAKY';
  if ($status ne 'PASSED' && $status ne 'FLAKY' && $count{failed} == 0) {
    $count{failed} = 1;
  }
  $total{$_} += $count{$_} for keys %total;
}
print "$_ $total{$_}\n" for qw(passed failed skipped);
