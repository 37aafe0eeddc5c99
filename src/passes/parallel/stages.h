#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/device.h"
#include "passes/parallel/micro_part.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// A device of a pipeline.
struct StageDevice {
  double speed = 1;          ///< relative to StageOptions::device
  int64_t memory_bytes = 0;  ///< 0: unlimited
};

/// Options of split_stages().
struct StageOptions {
  std::vector<StageDevice> devices;  ///< one per stage, in order
  cost::Device device;               ///< a device of speed 1 in the cost model
  int64_t num_micro = 1;             ///< micro-batches per update
  /// bytes stored per byte of a trained weight, including the weight: gradient and optimizer states
  double weight_copies = 4;
  /// Stages already assigned to weights and states by name: Stages::homes of another graph of the model.
  std::map<std::string, int> homes;
};

/// A value that one stage computes or stores and another stage reads.
struct Crossing {
  ir::ValueId value = ir::kNone;
  int from = 0;
  int to = 0;
  /// Phase in which it is read; values read in phase `late` are computed in the backward pass.
  MicroPart part = MicroPart::forward;
};

/// Predicted load of a stage.
struct StageShare {
  double seconds = 0;            ///< seconds per micro-batch
  int64_t weight_bytes = 0;      ///< weights with all their copies
  int64_t activation_bytes = 0;  ///< activations kept for the backward pass by its micro-batches in flight
};

/// A graph partitioned into consecutive stages.
struct Stages {
  /// Stage number of nodes that every reading stage computes: they depend on no weight.
  static constexpr int kEvery = -1;

  std::vector<int> of_node;
  std::vector<MicroPart> part_of_node;
  std::vector<Crossing> crossings;  ///< sorted by value; at most one per value and receiving stage
  std::vector<StageShare> shares;
  /// Stage that stores each weight and state, by name; the last reader's if several do.
  std::map<std::string, int> homes;
};

/// Partitions the forward and backward pass of a micro-batch, as built by `backward`, into one stage per
/// device. Candidate cuts are where the fewest values cross, between layers; of those, it chooses the ones
/// that minimize the time of the slowest stage within each device's memory. A stage stores the activations of
/// the micro-batches in flight (1F1B, PipeDream, Narayanan et al., SOSP 2019). A weight is stored where it is
/// read last, so that a head tied to the embedding table has it, and only the rows of a micro-batch and their
/// gradients are sent. A backward node belongs to the stage of the node it differentiates. The result depends
/// on graph and options alone, so all workers agree. Throws UserError if there are too few places to cut.
Stages split_stages(const TrainGraph& train, const StageOptions& options);

}  // namespace hearth::passes
