#pragma once

#include <cstdint>
#include <vector>

#include "arena/problem.h"

namespace hearth::arena {

/// A buffer as the exact search sees it.
struct Item {
  /// Half-open range of cliques.
  int first = 0;
  int last = 0;
  /// In units of Pieces::unit.
  int64_t size = 0;
  int64_t alignment = 1;
  /// Place in Problem::buffers.
  int buffer = 0;
  /// An item before it with the same range, size and alignment, or -1.
  int twin = -1;
};

/// Buffers that share no time with the rest of the problem, by first clique. A clique is a largest set of
/// buffers alive together: two items overlap in time exactly if they share one.
struct Piece {
  std::vector<Item> items;
  int num_cliques = 0;
  /// Most units alive at once.
  int64_t bound = 0;
};

/// A problem cut in time, in units of the largest number that divides every size and offset. Empty buffers
/// are left out.
struct Pieces {
  std::vector<Piece> pieces;
  int64_t unit = 1;
};

Pieces cut(const Problem& problem);

}  // namespace hearth::arena
