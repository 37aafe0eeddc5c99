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
  double speed = 1;          ///< of all devices, in shares
  int64_t memory_bytes = 0;  ///< 0: as much as it takes
};

struct StageOptions {
  std::vector<StageDevice> devices;  ///< in the order of their stages
  cost::Device device;               ///< of a device of speed 1
  int64_t num_micro = 1;             ///< micro-batches of an update
  double weight_copies = 4;          ///< bytes kept for each byte of a trained weight, itself included
  /// Weights, and states read in their place, by name: the stages that they are in already, as Stages::homes
  /// of another graph of the model has them.
  std::map<std::string, int> homes;
};

/// A value that one stage makes or keeps and another one reads.
struct Crossing {
  ir::ValueId value = ir::kNone;
  int from = 0;
  int to = 0;
  /// What it is read for; what is read late is made in the backward pass.
  MicroPart part = MicroPart::forward;
};

/// What falls to a stage, by the model that the cuts were chosen by.
struct StageShare {
  double seconds = 0;            ///< of a micro-batch
  int64_t weight_bytes = 0;      ///< weights in all their copies
  int64_t activation_bytes = 0;  ///< what its micro-batches in flight keep for the backward pass
};

/// A graph in stages, one after the other.
struct Stages {
  /// Of a node that is made in every stage which reads it: it depends on no weight.
  static constexpr int kEvery = -1;

  std::vector<int> of_node;
  std::vector<MicroPart> part_of_node;
  std::vector<Crossing> crossings;  ///< by value; each value at most once to a stage
  std::vector<StageShare> shares;
  /// The stage that keeps each weight and each state, or reads it last where several keep it, by name.
  std::map<std::string, int> homes;
};

/// Cuts the forward and backward pass of a micro-batch, as `backward` leaves it, into a stage for each
/// device. Cuts go where the fewest values cross, between layers; of those, the ones under which the slowest
/// stage is the fastest, in the memory of each. A stage keeps micro-batches in flight for those after it
/// (1F1B, Narayanan and others, SOSP 2019). A weight lives where it is read last, so that a head that is the
/// table too has it, and only the rows of a micro-batch and their gradients travel; a node of the backward
/// pass goes to the stage of what it differentiates. Follows from graph and options alone, so that all
/// workers agree. UserError where there are too few places to cut.
Stages split_stages(const TrainGraph& train, const StageOptions& options);

}  // namespace hearth::passes
