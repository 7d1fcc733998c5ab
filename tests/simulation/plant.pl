#!/usr/bin/perl
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# plant.pl MUTATIONS PATH SOURCE: prints SOURCE, the file PATH of this
# repository, with all bugs that MUTATIONS has for it.
#
# In MUTATIONS, a line "BUG PATH" precedes the bug's replacements, and an empty
# line separates two replacements. A replacement has lines of the source, marked
# "-" if the bug removes them and " " if they only show the place, and lines
# that the bug adds, marked "+". The source must have its lines exactly once.
#
# A function that bugs change gets a body for each bug beside its own, and runs
# the body of the process's bug (tests/simulation/planted_bug.h). So a
# replacement must be within the bodies of functions that end with "}" on a line
# of its own, or ask IsPlanted by itself.
use strict;
use warnings;

my ($mutations, $path, $source) = @ARGV;

sub read_file {
  my ($name) = @_;
  local $/;
  open my $file, '<', $name or die "plant.pl: $name: $!\n";
  return <$file>;
}

# Returns the text with one replacement made.
sub replaced {
  my ($text, $bug, $from, $to) = @_;
  my $times = () = $text =~ /^\Q$from\E/mg;
  die "plant.pl: $path: these lines of $bug stand there $times times, not once:\n$from"
    if $times != 1;
  $text =~ s/^\Q$from\E/$to/m;
  return $text;
}

# Returns the text in parts: what precedes a function, the function's lines up
# to "{", its body, and so on.
sub parts {
  my ($text) = @_;
  return split /^((?!namespace\b|struct\b|class\b)[A-Za-z_~][^;{}#]*\)[^;{}=#]*\{\n)(.*?)(?=^\}\n)/ms,
    $text;
}

my $text = read_file($source);
my %replacements;
my $list = read_file($mutations);
while ($list =~ /^(\w+) \Q$path\E\n((?:[-+ ].*\n|\n)+)/mg) {
  my ($bug, $lines) = ($1, $2);
  $replacements{$bug} = [];
  for my $replacement (split /\n\n+/, $lines) {
    my ($from, $to) = ('', '');
    for my $line (split /\n/, $replacement) {
      my ($mark, $rest) = $line =~ /(.)(.*)/;
      $from .= "$rest\n" if $mark ne '+';
      $to .= "$rest\n" if $mark ne '-';
    }
    if ($to =~ /IsPlanted\(/) {
      $text = replaced($text, $bug, $from, $to);
    } else {
      push @{$replacements{$bug}}, [$from, $to];
    }
  }
}
die "plant.pl: $mutations: there are no bugs of $path\n" if !%replacements;

my @parts = parts($text);
# The branches by part: one for each bug that changes it.
my @branches;
for my $bug (sort keys %replacements) {
  my $changed = $text;
  $changed = replaced($changed, $bug, @$_) for @{$replacements{$bug}};
  my @changed = parts($changed);
  for my $i (0 .. $#parts) {
    next if @changed == @parts && $parts[$i] eq $changed[$i];
    die "plant.pl: $path: $bug changes more than bodies of functions\n"
      if @changed != @parts || $i % 3 != 2;
    push @{$branches[$i]},
      "if (static const bool is_planted = ::causeway::simulation::IsPlanted(\"$bug\");\n"
      . "      is_planted) {\n$changed[$i]  } else ";
  }
}
print "#include \"tests/simulation/planted_bug.h\"\n";
for my $i (0 .. $#parts) {
  print defined $branches[$i]
    ? join('', '  ', @{$branches[$i]}) . "{\n$parts[$i]  }\n"
    : $parts[$i];
}
