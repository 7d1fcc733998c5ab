#!/usr/bin/perl
# SPDX-FileCopyrightText: The Causeway authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: pod_prose.pl FILE.pod... > TEXT
#
# Extracts the English prose of Perl's manual pages: resolves markup, puts each
# paragraph on one line, and leaves out code examples.

use strict;
use warnings;

package Prose {
  use parent 'Pod::Text';
  sub cmd_verbatim { return '' }
}

for my $file (@ARGV) {
  my $parser = Prose->new(
    width => 1_000_000, indent => 0, quotes => 'none', errors => 'none');
  my $text;
  $parser->output_string(\$text);
  $parser->parse_file($file);
  utf8::encode($text) if utf8::is_utf8($text);
  print $text;
}
