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

/// Classifies the nodes of a micro-batch's graph, and assigns each a position along the forward path, which
/// consists of the nodes that the losses depend on. A node on the path has its index on the path as position;
/// any other node has the position of a related node on the path.
class Positions {
 public:
  static constexpr int kNowhere = std::numeric_limits<int>::max();

  /// `homes`: StageOptions::homes. Both arguments must outlive this object.
  Positions(const TrainGraph& train, const std::map<std::string, int>& homes);

  /// Returns the number of nodes on the forward path.
  int num_positions() const { return num_positions_; }
  /// True if the node depends on no weight, so that every stage can compute it.
  bool is_free(size_t node) const { return free_[node] != 0; }
  /// Returns the phase in which the node runs.
  MicroPart part(size_t node) const { return part_[node]; }
  /// True if the losses depend on the node.
  bool is_on_path(size_t node) const { return part_[node] == MicroPart::forward && path_[node] != 0; }
  /// Returns the position of a node; kNowhere if every stage that needs it computes it.
  int of_node(size_t node) const { return position_[node]; }
  /// Returns the position at which a value is computed or, for a persistent value, read last. kNowhere if
  /// every stage that reads the value computes it.
  int of_value(ir::ValueId id) const;
  /// Returns the stage that StageOptions::homes assigns to a persistent value, if any.
  std::optional<int> home_of(ir::ValueId id) const;
  /// True if the value is computed in the backward pass.
  bool is_backward_value(ir::ValueId id) const;
  /// If the node computes values only from a weight that is larger than they are and is also read later on
  /// the path (like an embedding table), returns that weight; otherwise kNone.
  ir::ValueId larger_weight(size_t node) const;

 private:
  /// For each value, 1 if it depends on a weight, on the micro-batch's inputs, or on the cotangent of the
  /// losses.
  struct Marks {
    std::vector<char> weights, micro, cotangent;
  };

  void mark();
  std::set<ir::ValueId> written_leaves() const;
  /// Marks the nodes that the losses depend on.
  void mark_path();
  void classify(size_t i, Marks& marks);
  void number_path();
  /// The first and the last position at which a value is read.
  struct Range {
    int first = kNowhere, last = kNowhere;
    void add(Range other);
  };
  /// Computes, for persistent values without a range, the first and last position at which they are read,
  /// from the positions assigned so far.
  void find_readers();
  /// Position of a weight, which the nodes that compute only its gradient get too.
  struct Pin {
    int position = kNowhere;
    /// True if the weight is read at several positions, so that its gradient is complete only after the
    /// backward passes of all of them.
    bool is_late = false;
  };
  std::map<ir::NodeId, Pin> pins() const;
  /// Returns the input of a cast, view or accumulation that is not a gradient sum; kNone if there are
  /// several.
  ir::ValueId only_computed_input(const ir::Node& node) const;
  void assign_remaining();
  /// If a gradient is sent across a cut anyway, moves casts and views of it to the receiving stage, so that
  /// they need not be sent too.
  void follow_readers(const Readers& readers);
  /// If a node's outputs are larger than its inputs, moves it to the stage of its readers, because sending
  /// the inputs is cheaper.
  void follow_late_readers(const Readers& readers);
  /// Returns the last position of a node's forward inputs, or `otherwise` if it has none.
  int last_input(const ir::Node& node, int otherwise) const;
  /// Returns the position of a backward node; not after any of its backward inputs, because gradients flow to
  /// earlier positions.
  int backward_position(const ir::Node& node, Pin pin) const;

  const TrainGraph& train_;
  const ir::Graph& graph_;
  const std::map<std::string, int>& homes_;
  std::vector<char> free_, path_;
  std::vector<MicroPart> part_;
  std::vector<int> position_;
  std::vector<Range> readers_;  ///< for each persistent value, the positions where it is read
  int num_positions_ = 0;
};

}  // namespace hearth::passes
