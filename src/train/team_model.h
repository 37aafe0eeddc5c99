#pragma once

#include <string>

#include "exec/replay.h"
#include "passes/machine.h"
#include "train/engine.h"

namespace hearth::train {

/// What bytes between workers go over, a card each; all in bytes per second.
struct Links {
  /// Between a card and its host's memory, each way; 0: the card model's.
  double card = 0;
  /// Reads and writes of host memory together, by the cards and workers of a machine: two channels of DDR5,
  /// assumed.
  double memory = 60e9;
  /// Of an array that a worker's processor adds up with the others': bench/RESULTS-comm.md, beyond the
  /// caches.
  double sums = 9e9;
  /// Each way, between machines of one card each; 0: one machine has all cards.
  double network = 0;
};
/// What TCP leaves of so many bits per second: 1448 bytes in a frame of 1538.
double network_bytes_per_second(double bits_per_second);

/// An update on cards that need not be there: each program's steps in their order and with their waits, at
/// the times of a card model. A simulation, not a measurement.
struct TeamModel {
  int64_t num_workers = 1;
  double seconds = 0;  ///< of an update
  double exposed_seconds =
      0;  ///< of them, in which a card stands still and waits for copies or other workers
  std::array<double, exec::kNumQueues> busy_seconds = {};  ///< of a worker's queues
  int64_t num_samples = 0;                                 ///< pictures, or tokens, of an update
  bool is_text = false;
  int64_t card_bytes = 0;   ///< PlanReport::peak_bytes of the card that needs most
  int64_t arena_bytes = 0;  ///< of them
  int64_t host_bytes = 0;   ///< PlanReport::host_bytes of its worker

  double samples_per_second() const { return static_cast<double>(num_samples) / seconds; }
  std::string_view samples_name() const { return is_text ? "tokens" : "images"; }
};

/// Plans the programs of one of EngineOptions::num_workers cards (nothing is run) and replays them.
TeamModel model_team(EngineOptions options, const passes::CardModel& card, const Links& links);

/// A few lines beside `one`, the same work on one card.
std::string to_text(const TeamModel& team, const TeamModel& one, const passes::CardModel& card,
                    const Links& links);
/// One line of JSON.
std::string to_json(const TeamModel& team, const TeamModel& one, const passes::CardModel& card,
                    const Links& links);

}  // namespace hearth::train
