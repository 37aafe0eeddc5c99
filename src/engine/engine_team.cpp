#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "cost/seconds.h"
#include "engine/engine.h"
#include "ir/state_name.h"

namespace hearth::engine {

SumOptions Engine::sums() const {
  const auto own = static_cast<uint64_t>(num_own_shards());
  HEARTH_CHECK(std::has_single_bit(own));
  return {.num_micro = works_alone() ? num_own_micro() : options_.accumulate,
          .has_earlier = num_own_micro() > 1,
          .num_levels = std::countr_zero(own),
          .rank = options_.rank,
          .num_workers = works_alone() ? 1 : static_cast<int>(options_.num_workers),
          .owners = owners_,
          .shards_weights = shards_weights()};
}

void Engine::add_levels() {
  for (int level = 0; level < sums().num_levels; ++level) {
    const ir::Graph& names = train_program().graph();
    levels_.push_back({.put_away = finish(make_move_graph(names, 0, level + 1), Purpose::step),
                       .add = finish(make_move_graph(names, level + 1, 0), Purpose::step)});
  }
}

void Engine::join(distributed::ProcessGroup& group) {
  HEARTH_CHECK(group.has(distributed::Capability::device_memory) == options_.meets_on_gpu);
  HEARTH_CHECK(group.size() == options_.num_workers && group.rank() == options_.rank);
  team_ = &group;
  own_losses_.resize(static_cast<size_t>(num_own_micro()));
  // Stages of a pipeline would wait for each other in turns.
  if (!gpu_ && (is_pipeline() || !group.has(distributed::Capability::own_cores)))
    exchange_queue_ = std::make_unique<exec::HostQueue>();
  for (exec::Program* program : programs()) program->connect(group, exchange_queue_.get());
  // What the group was waited for before is not of this engine's updates.
  waited_since(std::chrono::steady_clock::now());
}

data::LoaderShare Engine::share() const {
  const int64_t count = num_own_micro();
  return {.group = options_.accumulate, .first = is_pipeline() ? 0 : options_.rank * count, .count = count};
}

void Engine::finish_shard(int64_t number) {
  size_t level = 0;
  for (; (number >> level & 1) != 0; ++level) levels_[level].add->start(threads_);
  levels_[level].put_away->start(threads_);
}

void Engine::make_idle_batch() {
  const auto& [shape, program] = *step_.rbegin();
  int64_t most = 0;
  for (const std::string& name : input_names_) {
    const ir::Graph& graph = program->graph();
    if (const auto input = graph.find(name)) most = std::max(most, graph.type(*input).num_bytes());
  }
  zeros_ = exec::Region(passes::padded_bytes(most));
  idle_batch_ = {.num_rows = shape.num_rows, .row_length = shape.row_length};
  idle_batch_.inputs.fill(zeros_.data());
}

void Engine::find_away() {
  // What checkpoints hold is the same on all workers, wherever it is.
  std::vector<const exec::PersistentBuffer*> buffers;
  std::vector<std::byte> mine;
  for (const exec::PersistentBuffer& buffer : layout_.buffers()) {
    if (buffer.role == ir::Role::frozen || buffer.role == ir::Role::carried) continue;
    buffers.push_back(&buffer);
    mine.push_back(std::byte{buffer.role != ir::Role::remote});
  }
  std::vector<std::byte> all(buffers.size() * static_cast<size_t>(team_->size()));
  team_->all_gather(mine, all);
  away_.emplace();
  for (size_t i = 0; i < buffers.size(); ++i) {
    int owner = 0;
    while (owner < team_->size() && all[static_cast<size_t>(owner) * buffers.size() + i] == std::byte{0})
      ++owner;
    if (owner == team_->size()) {
      ir::StateName name = ir::parse_state_name(buffers[i]->name);
      const int worker = std::exchange(name.worker, 0);
      HEARTH_CHECK(worker > 0);
      away_->push_back({buffers[i], worker, &layout_.at(ir::spell(name))});
    } else if (owner > 0) {
      away_->push_back({buffers[i], owner, buffers[i]});
    }
  }
}

void Engine::gather_states() {
  if (team_ == nullptr) return;
  if (!away_) find_away();
  std::byte* const memory = away_->empty() ? nullptr : persistent();
  for (const auto& [buffer, owner, source] : *away_) {
    const auto num_bytes = static_cast<size_t>(buffer->type.num_bytes());
    if (team_->rank() == 0) team_->receive({memory + buffer->offset, num_bytes}, owner);
    if (team_->rank() == owner) team_->send({memory + source->offset, num_bytes}, 0);
  }
}

double Engine::gather_losses(float* losses) {
  team_->check();
  const auto start = std::chrono::steady_clock::now();
  const data::LoaderShare own = share();
  if (is_pipeline()) {
    const auto last = static_cast<int>(options_.num_workers - 1);
    team_->broadcast(std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))), last);
    return waited_since(start);
  }
  std::copy_n(losses + own.first, own.count, own_losses_.begin());
  team_->all_gather(std::as_bytes(std::span(own_losses_)),
                    std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))));
  return waited_since(start);
}

double Engine::waited_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double waited = exchange_queue_ ? exchange_queue_->waited_seconds() : gpu_ ? 0 : team_->seconds();
  return seconds.count() + waited - std::exchange(waited_seconds_, waited);
}

double Engine::evaluation_seconds(BatchShape shape) const {
  return 10 * cost::simulate(evaluate_.at(shape)->graph(), options_.machine).seconds;
}

double Engine::flops_per_update() const {
  if (is_pipeline()) return pipeline_.flops;
  const auto num_steps = static_cast<double>(options_.num_workers);
  const double others = accumulate_.empty() ? 0 : accumulate_program()->report().flops;
  return num_steps * train_program().report().flops +
         (static_cast<double>(options_.accumulate) - num_steps) * others;
}

}  // namespace hearth::engine
