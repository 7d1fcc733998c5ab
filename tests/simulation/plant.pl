#!/usr/bin/perl
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# plant.pl BUG MUTATIONS SOURCE: prints SOURCE with one of the bugs of MUTATIONS.
#
# There, a line that has the bug's name alone precedes its replacements, and an
# empty line separates two of these. A replacement has the lines of the source,
# marked "-" if the bug removes them and " " if they only tell the place, among
# those that the bug adds, marked "+". The lines of the source must stand there
# once.
use strict;
use warnings;

local $/;
my ($bug, $mutations, $source) = @ARGV;
open my $list, '<', $mutations or die "plant.pl: $mutations: $!\n";
open my $file, '<', $source or die "plant.pl: $source: $!\n";
my $text = <$file>;
my ($replacements) = <$list> =~ /^\Q$bug\E\n((?:[-+ ].*\n|\n)+)/m
  or die "plant.pl: $mutations: there is no bug $bug\n";
for my $replacement (split /\n\n+/, $replacements) {
  my ($from, $to) = ('', '');
  for my $line (split /\n/, $replacement) {
    my ($mark, $rest) = $line =~ /(.)(.*)/;
    $from .= "$rest\n" if $mark ne '+';
    $to .= "$rest\n" if $mark ne '-';
  }
  my $times = () = $text =~ /^\Q$from\E/mg;
  die "plant.pl: $source: these lines of $bug stand there $times times, not once:\n$from"
    if $times != 1;
  $text =~ s/^\Q$from\E/$to/m;
}
print $text;
