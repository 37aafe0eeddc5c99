#pragma once

#include <cstdint>
#include <vector>

#include "arena/problem.h"

namespace hearth::arena {

/// A buffer in the representation of the exact search.
struct Item {
  /// Half-open range [first, last) of the indices of the cliques that contain the item.
  int first = 0;
  int last = 0;
  /// Size in units of Pieces::unit.
  int64_t size = 0;
  int64_t alignment = 1;
  /// Index in Problem::buffers.
  int buffer = 0;
  /// Index of an earlier item with equal lifetime, size and alignment; -1 if none.
  int twin = -1;
};

/// A connected component of buffers in time, with items sorted by first clique. A clique is a maximal set of
/// buffers alive at the same time: two items overlap in time if and only if they share a clique.
struct Piece {
  std::vector<Item> items;
  int num_cliques = 0;
  /// Max units alive at the same time, which is a lower bound of the height.
  int64_t bound = 0;
};

/// A problem split into connected components in time, with sizes in units of their greatest common divisor.
/// Buffers of size 0 are not included.
struct Pieces {
  std::vector<Piece> pieces;
  int64_t unit = 1;
};

/// Splits a problem into pieces.
Pieces cut(const Problem& problem);

}  // namespace hearth::arena
