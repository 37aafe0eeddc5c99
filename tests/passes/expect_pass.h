#pragma once

#include <gtest/gtest.h>

#include <string>

#include "graph_text.h"
#include "ir/verify.h"

namespace hearth::passes {

/// Runs a pass over a text and compares with the text it should give, numbers aside.
inline void expect_pass(void (*pass)(ir::Graph&), const std::string& before, const std::string& after) {
  ir::Graph graph = graph_of(before);
  pass(graph);
  ir::verify(graph, "the pass");
  EXPECT_EQ(renumbered(graph), renumbered(after));
}

}  // namespace hearth::passes
