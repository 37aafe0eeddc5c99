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

/// Classifies the nodes of a micro-batch's graph and assigns each a position along the forward path (the
/// nodes that the losses depend on): its own index on the path, or that of the node it belongs to.
class Positions {
 public:
  static constexpr int kNowhere = std::numeric_limits<int>::max();

  /// `homes`: see StageOptions. Both arguments must outlive this object.
  Positions(const TrainGraph& train, const std::map<std::string, int>& homes);

  /// Number of nodes on the forward path.
  int num_positions() const { return num_positions_; }
  /// True if the node depends on no weight, so that every stage can compute it.
  bool is_free(size_t node) const { return free_[node] != 0; }
  /// Phase of a node.
  MicroPart part(size_t node) const { return part_[node]; }
  /// True if the losses depend on the node.
  bool is_on_path(size_t node) const { return part_[node] == MicroPart::forward && path_[node] != 0; }
  /// Position of a node.
  int of_node(size_t node) const { return position_[node]; }
  /// Returns the position where a value is computed or, for a persistent value, last read on the path;
  /// kNowhere if every stage that reads it computes it.
  int of_value(ir::ValueId id) const;
  /// Returns the stage of a persistent value, if it is fixed in advance.
  std::optional<int> home_of(ir::ValueId id) const;
  /// True if the value is computed in the backward pass.
  bool is_backward_value(ir::ValueId id) const;
  /// Returns a weight that is also read later on the path and is larger than what this node computes from it
  /// alone (as an embedding table); otherwise kNone.
  ir::ValueId larger_weight(size_t node) const;

 private:
  /// Dependencies of values: on weights, on the micro-batch's inputs, on the losses' cotangent.
  struct Marks {
    std::vector<char> weights, micro, cotangent;
  };

  void mark();
  std::set<ir::ValueId> written_leaves() const;
  /// Marks the nodes that the losses depend on.
  void mark_path();
  void classify(size_t i, Marks& marks);
  void number_path();
  /// First and last position where a value is read.
  struct Range {
    int first = kNowhere, last = kNowhere;
    void add(Range other);
  };
  /// Computes the readers of persistent values that have none yet, from the positions assigned so far.
  void find_readers();
  /// Position of a weight; nodes that compute only its gradient belong there.
  struct Pin {
    int position = kNowhere;
    /// true if the weight is read at several positions: its gradient waits for all of them
    bool is_late = false;
  };
  std::map<ir::NodeId, Pin> pins() const;
  /// Returns the single computed input of a cast, view or accumulation; kNone for a node with several.
  ir::ValueId only_computed_input(const ir::Node& node) const;
  void assign_remaining();
  /// Moves casts and views of a gradient that is sent across a cut anyway to the receiving side, so that they
  /// are not sent too.
  void follow_readers(const Readers& readers);
  /// Moves nodes that enlarge such a gradient to their readers, because sending their smaller input is
  /// cheaper.
  void follow_late_readers(const Readers& readers);
  /// Returns the last position of a node's forward inputs, or `otherwise` if it has none.
  int last_input(const ir::Node& node, int otherwise) const;
  /// Returns the position of a backward node: at most that of its backward inputs.
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
