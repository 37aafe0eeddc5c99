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
  double speed = 1;          ///< speed relative to StageOptions::device
  int64_t memory_bytes = 0;  ///< memory available to the stage; 0: unlimited
};

/// Options of split_stages().
struct StageOptions {
  std::vector<StageDevice> devices;  ///< devices of the stages, in order
  cost::Device device;               ///< device in the cost model that has speed 1
  int64_t num_micro = 1;             ///< number of micro-batches per update
  /// Bytes stored per byte of a trained weight: the weight itself, its gradient and the optimizer's states.
  double weight_copies = 4;
  /// For weights and states that already have a stage, by name: the Stages::homes of another graph of the
  /// same model.
  std::map<std::string, int> homes;
};

/// A value that one stage computes or stores and another stage reads, so that it must be sent.
struct Crossing {
  ir::ValueId value = ir::kNone;
  int from = 0;
  int to = 0;
  /// Phase in which the receiving stage reads the value. Values read in phase `late` are computed in the
  /// backward pass.
  MicroPart part = MicroPart::forward;
};

/// Load of a stage according to the cost model.
struct StageShare {
  double seconds = 0;        ///< time for the forward and backward pass of one micro-batch
  int64_t weight_bytes = 0;  ///< bytes of weights, multiplied by StageOptions::weight_copies for trained ones
  /// Activations kept for the backward passes of the micro-batches in flight.
  int64_t activation_bytes = 0;
};

/// A graph partitioned into consecutive stages.
struct Stages {
  /// Stage number of nodes that depend on no weight: every stage that reads their outputs computes them.
  static constexpr int kEvery = -1;

  std::vector<int> of_node;
  std::vector<MicroPart> part_of_node;
  std::vector<Crossing> crossings;  ///< sorted by value; at most one for each value and receiving stage
  std::vector<StageShare> shares;
  /// Stage that stores each weight and state, by name. If several stages read a weight, the last one stores
  /// it.
  std::map<std::string, int> homes;
};

/// Partitions the forward and backward pass of a micro-batch, as built by backward(), into one stage per
/// device. Cuts are possible where the fewest values cross, that is, between layers. Of these, it chooses the
/// cuts that minimize the time of the slowest stage within the memory of each device, which must also hold
/// the activations of the micro-batches in flight (1F1B, PipeDream, Narayanan et al., SOSP 2019). A weight is
/// stored by the stage that reads it last: if the head is tied to the embedding table, the head's stage has
/// the table, and only the rows of a micro-batch and their gradients are sent. A backward node is in the
/// stage of the node that it differentiates. The result depends on graph and options only, so that all
/// workers agree. Throws UserError if there are too few positions to cut.
Stages split_stages(const TrainGraph& train, const StageOptions& options);

}  // namespace hearth::passes
