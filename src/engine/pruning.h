#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/pruning.h"
#include "nn/module.h"
#include "passes/train_graph.h"

namespace hearth::engine {

/// Pruning during training: a mask per weight selects elements that are exactly zero. After an update, the
/// program of make_prune_graph() sets the masks (Engine::prune).
struct PruneOptions {
  PruneMethod method = PruneMethod::none;
  PruneScope scope = PruneScope::layer;
  PrunePattern pattern = PrunePattern::unstructured;
  std::vector<std::string> kept;  ///< modules that are not pruned
  /// True if the last layer is not pruned because it is the model's output. The head of language models is a
  /// table, which is never pruned.
  bool keeps_last = false;
};

/// A weight that is pruned. `stride`: distance of elements of adjacent inputs, for N:M patterns.
struct PrunedWeight {
  std::string name;
  int64_t stride = 1;
};

/// Scalar inputs of the program that sets the masks: fraction of pruned elements, and for RigL the fraction
/// that is pruned before weights grow again.
inline constexpr const char* kPruneSparsity = "prune_sparsity";
inline constexpr const char* kDroppedSparsity = "dropped_sparsity";

/// Returns the weights that are pruned: trained weights of at least two axes, except embedding tables,
/// adapters, PruneOptions::kept, and layers that the pattern's groups do not divide. Throws a UserError if
/// there is none.
std::vector<PrunedWeight> pruned_weights(const ir::Graph& graph, std::span<const nn::Tensor> tensors,
                                         const PruneOptions& options);

/// Weights whose masks an update applies.
struct MaskedUpdate {
  PruneMethod method = PruneMethod::none;
  std::span<const PrunedWeight> weights;
};

/// Masks of weights in the graph of an update.
class Masks {
 public:
  /// Adds the mask of each weight to the graph, and its score for methods that keep scores.
  Masks(ir::Graph& graph, const MaskedUpdate& update);
  /// Replaces the gradients of pruned weights by gradients with zeros at pruned elements.
  void apply_to(std::vector<passes::Gradient>& gradients);
  /// Changes the score of a weight, if it has one, by its gradient before apply_to().
  void add_score(ir::ValueId parameter, ir::ValueId factor);
  /// Returns a changed weight, or another value of its shape, with zeros at pruned elements.
  ir::ValueId applied(const std::string& weight, ir::ValueId value);

 private:
  /// Returns the mask of a weight; kNone if it is not pruned.
  ir::ValueId mask_of(const std::string& weight) const;

  ir::Graph& graph_;
  PruneMethod method_;
  std::map<std::string, ir::ValueId> dense_;  ///< gradients before apply_to(), by weight
};

/// Returns a graph that computes the masks of all weights, and then sets pruned elements of the weights and
/// of their optimizer states to zero. `step`: graph of an update, for names and types.
passes::TrainGraph make_prune_graph(const ir::Graph& step, std::span<const PrunedWeight> weights,
                                    const PruneOptions& options);

}  // namespace hearth::engine
