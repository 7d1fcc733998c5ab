#!/usr/bin/perl
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: manual.pl PROGRAM | pod2man ... > PAGE
#
# Writes the manual page of a program, in POD, from what its --help says. Knows
# the two forms of help that programs of this project have: a list of flags, and
# a list of commands.

use strict;
use warnings;

my ($path) = @ARGV;
(my $program = $path) =~ s{.*/}{};

sub help_of {
  open(my $output, '-|', $path, @_) or die "cannot run $path: $!\n";
  local $/;
  my $text = <$output>;
  close $output;
  die "$path @_ prints no help\n" if !$text;
  return $text;
}

# Escapes what POD would take for markup.
sub escape { return shift =~ s/([<>])/$1 eq '<' ? 'E<lt>' : 'E<gt>'/ger }

# flag NAME VALUE TEXT: prints an entry of a list of flags.
sub flag {
  my ($name, $value, $text) = map { escape($_ // '') } @_;
  $text =~ s/\s+/ /g;
  # POD would print an indented paragraph verbatim.
  $text =~ s/^ //;
  print "=item B<--$name>", $value ? " I<$value>" : '', "\n\n$text\n\n";
}

# daemon HELP: prints the page of a program whose help Abseil prints.
sub daemon {
  my ($head, $flags) = split /^  Flags from .*\n/m, shift, 2;
  my ($summary, $usage) = $head =~ /^\Q$program\E: (.*?)\n\n(.*)/s;
  $flags =~ s/\n\nTry --helpfull.*//s;
  # The page is indented, and has 80 columns.
  $usage =~ s/^(?=.{68})(.{1,67}) (?=--)/$1\n      /mg;
  print "=head1 NAME\n\n$program - ", lc substr($summary, 0, 1),
    escape(substr($summary, 1)), "\n\n=head1 SYNOPSIS\n\n$usage\n",
    "=head1 OPTIONS\n\n=over\n\n";
  flag($1, '', "$2 Default: $3.")
    while $flags =~ /^    --(\w+) \((.*?)\);\s+default: (.*?);$/gms;
  print "=back\n\n";
}

# command NAME: prints the section of a command.
sub command {
  my ($name) = @_;
  my ($text, $flags) = split /^Flags:\n/m, help_of('help', $name), 2;
  $text =~ s/^(.*?)\n\nUsage: (.*?)\n//s;
  print "=head2 $name\n\n", escape("  $2\n\n$1\n$text\n"), "=over\n\n";
  flag($1, $2, $3)
    while $flags =~ /^  --(\w+) ?(.*)\n((?:      .*\n)+)/gm;
  print "=back\n\n";
}

my $help = help_of('--help');
if ($help =~ /^  Flags from /m) {
  daemon($help);
} else {
  my ($summary) = $help =~ /^(.*?)\n\nUsage: /s;
  my @commands = $help =~ /^  (\S+)  /gm;
  print "=head1 NAME\n\n$program - Plans, watches and steers training runs\n\n",
    "=head1 SYNOPSIS\n\n  $program COMMAND [ARGUMENTS] [--flags]\n\n",
    '=head1 DESCRIPTION', "\n\n", escape($summary),
    "\n\n=head1 COMMANDS\n\n";
  command($_) for @commands;
}
