#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "passes/parallel/micro_part.h"
#include "passes/rewrite.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// What each node of a micro-batch's graph is, and its position: its own number among the nodes that lead to
/// the losses, or that of the one it belongs to.
class Positions {
 public:
  static constexpr int kNowhere = std::numeric_limits<int>::max();

  /// `homes`: see StageOptions. Both outlive it.
  Positions(const TrainGraph& train, const std::map<std::string, int>& homes);

  int num_positions() const { return num_positions_; }
  bool is_free(size_t node) const { return free_[node] != 0; }
  MicroPart part(size_t node) const { return part_[node]; }
  bool is_on_path(size_t node) const { return part_[node] == MicroPart::forward && path_[node] != 0; }
  int of_node(size_t node) const { return position_[node]; }
  /// Where a value is made, or, of what lasts, read last on the way to the losses; kNowhere: in every stage
  /// that reads it.
  int of_value(ir::ValueId id) const;
  /// Of what lasts: its stage, where that is known beforehand.
  std::optional<int> home_of(ir::ValueId id) const;
  bool is_made_backward(ir::ValueId id) const;
  /// What is read later on the way too, and is larger than what this node makes of it alone; or kNone.
  ir::ValueId larger_weight(size_t node) const;

 private:
  /// What values depend on.
  struct Marks {
    std::vector<char> weights, micro, cotangent;
  };

  void mark();
  std::set<ir::ValueId> written_leaves() const;
  /// The nodes that the losses depend on.
  void mark_path();
  void classify(size_t i, Marks& marks);
  void number_path();
  /// Where a value is read.
  struct Range {
    int first = kNowhere, last = kNowhere;
    void add(Range other);
  };
  /// Of what lasts and has no place so far, from the positions that are known.
  void find_readers();
  /// The position of a weight, to which nodes belong that make nothing but its gradient.
  struct Pin {
    int position = kNowhere;
    bool is_late = false;  ///< the weight is read at several positions: its gradient waits for all of them
  };
  std::map<ir::NodeId, Pin> pins() const;
  /// Of a cast, a view or a sum that is kept; kNone for a node that puts several values together.
  ir::ValueId only_made_input(const ir::Node& node) const;
  void place_rest();
  /// Casts and the like of a gradient that crosses a cut anyway are made after it, not sent too.
  void follow_readers(const Readers& readers);
  /// A part of such a gradient is made beside the others, where what it is made of is smaller.
  void follow_late_readers(const Readers& readers);
  /// The last position that a node's inputs of the forward pass have, or `otherwise`.
  int last_input(const ir::Node& node, int otherwise) const;
  /// Never after what it reads of the backward pass.
  int backward_position(const ir::Node& node, Pin pin) const;

  const TrainGraph& train_;
  const ir::Graph& graph_;
  const std::map<std::string, int>& homes_;
  std::vector<char> free_, path_;
  std::vector<MicroPart> part_;
  std::vector<int> position_;
  std::vector<Range> readers_;  ///< of each value that lasts
  int num_positions_ = 0;
};

}  // namespace hearth::passes
