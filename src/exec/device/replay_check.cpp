#include "exec/device/replay_check.h"

#include <algorithm>
#include <cstring>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "base/hash.h"
#include "passes/memory/storage.h"

namespace hearth::exec {
namespace {

using ir::kNone;
using ir::ValueId;
using In = Location::In;

constexpr int64_t kPieceBytes = int64_t{4} << 20;
/// Byte with which the arena is filled before each run: NaN in every floating dtype, and an invalid but
/// harmless value for lengths and indices. If a kernel is missing from the recording, its output therefore
/// differs, instead of being left over from the previous run.
constexpr int kFillByte = 0xFF;

size_t index(ValueId id) { return static_cast<size_t>(id); }

}  // namespace

ReplayCheck::ReplayCheck(const Program& program, const Bindings& places,
                         std::span<std::byte* const> addresses)
    : program_(program),
      bindings_(places),
      addresses_(addresses),
      stream_(*places.queues[static_cast<size_t>(Queue::compute)]),
      piece_(static_cast<size_t>(kPieceBytes)) {
  for (const Step& step : program.steps) {
    for (const ir::Node& node : program.nodes_of(step)) {
      for (const ValueId id : node.outputs) {
        add(program.root[index(id)], true);
        if (step.on_host) collective_bytes_ += program.graph.type(id).num_bytes();
      }
    }
  }
  for (const ValueId id : program.graph.outputs) add(id, false);
}

void ReplayCheck::add(ValueId id, bool is_kept) {
  const In in = program_.locations[index(id)].in;
  const bool is_persistent = in == In::weights || in == In::host_weights;
  if (in == In::none || in == In::staging || is_persistent != is_kept) return;
  std::byte* const at = addresses_[index(id)];
  if (std::ranges::any_of(results_, [&](const Result& result) { return result.at == at; })) return;
  const ir::Value& value = program_.graph.value(id);
  Result result{.name = value.name,
                .at = at,
                .num_bytes = value.type.num_bytes(),
                .on_gpu = in != In::host_weights && in != In::host_arena,
                .is_kept = is_kept};
  if (result.name.empty() && value.producer != kNone)
    result.name = "the output of " + program_.graph.node(value.producer).name;
  if (in == In::weights) result.saved = image_of(at);
  if (in == In::host_weights) host_bytes_ += passes::padded_bytes(result.num_bytes);
  results_.push_back(std::move(result));
}

/// Returns the address of a weight or state in the host image, given its GPU address.
std::byte* ReplayCheck::image_of(const std::byte* at) const {
  const int64_t offset = at - bindings_.persistent;
  for (const DevicePiece& piece : bindings_.pieces) {
    if (offset >= piece.device_offset && offset < piece.device_offset + piece.num_bytes)
      return bindings_.host_persistent + piece.offset + (offset - piece.device_offset);
  }
  internal_error("there is no weight or state at byte {}", offset);
}

int64_t ReplayCheck::needed_bytes() const { return host_bytes_ + collective_bytes_; }

void ReplayCheck::save() {
  saved_on_host_ = Region(host_bytes_);
  std::byte* next = saved_on_host_.data();
  for (Result& result : results_) {
    if (!result.is_kept) continue;
    if (result.on_gpu) {
      stream_.copy_out(result.saved, result.at, result.num_bytes);
    } else {
      result.saved = next;
      next += passes::padded_bytes(result.num_bytes);
      std::memcpy(result.saved, result.at, static_cast<size_t>(result.num_bytes));
    }
  }
  stream_.synchronize();
  clear_arena();
}

void ReplayCheck::restore() {
  for (const Result& result : results_) {
    if (!result.is_kept) continue;
    if (result.on_gpu) {
      stream_.copy_in(result.at, result.saved, result.num_bytes);
    } else {
      std::memcpy(result.at, result.saved, static_cast<size_t>(result.num_bytes));
    }
  }
  clear_arena();
}

void ReplayCheck::clear_arena() {
  stream_.fill(bindings_.arena, kFillByte, program_.arena_bytes());
  if (bindings_.host != nullptr)
    std::memset(bindings_.host, kFillByte, static_cast<size_t>(program_.report.host_bytes));
  stream_.synchronize();
}

uint64_t ReplayCheck::hash_of(const Result& result) {
  if (!result.on_gpu) return hash64({result.at, static_cast<size_t>(result.num_bytes)});
  Hasher hasher;
  for (int64_t begin = 0; begin < result.num_bytes; begin += kPieceBytes) {
    const int64_t num_bytes = std::min(kPieceBytes, result.num_bytes - begin);
    stream_.copy_out(piece_.data(), result.at + begin, num_bytes);
    stream_.synchronize();
    hasher.update({piece_.data(), static_cast<size_t>(num_bytes)});
  }
  return hasher.digest();
}

void ReplayCheck::store_result_hashes() {
  for (Result& result : results_) result.hash = hash_of(result);
}

std::string ReplayCheck::difference() {
  if (!different_collective_.empty())
    return fmt::format("other bits in the data that {} sends", different_collective_);
  size_t num_other = 0;
  std::string first;
  for (const Result& result : results_) {
    if (hash_of(result) != result.hash && num_other++ == 0) first = result.name;
  }
  if (num_other == 0) return "";
  return fmt::format("other bits in {} of {} results, first in {}", num_other, results_.size(), first);
}

uint64_t ReplayCheck::hash_of(const Step& step, const ir::KernelArgs& args) const {
  Hasher hasher;
  size_t number = 0;
  for (const ir::Node& node : program_.nodes_of(step)) {
    for (const ValueId id : node.inputs) {
      const auto* from = static_cast<const std::byte*>(args.in[number++]);
      if (from != nullptr) hasher.update({from, static_cast<size_t>(program_.graph.type(id).num_bytes())});
    }
  }
  return hasher.digest();
}

void ReplayCheck::run_collective_once(const Step& step, const ir::KernelArgs& args) noexcept {
  Collective& known = collectives_[&step];
  const uint64_t sent = hash_of(step, args);
  if (known.is_made && known.sent != sent && different_collective_.empty())
    different_collective_ = program_.graph.nodes[step.node].name;
  if (!known.is_made) step.kernel.run(args);
  size_t number = 0;
  for (const ir::Node& node : program_.nodes_of(step)) {
    for (const ValueId id : node.outputs) {
      auto* const to = static_cast<std::byte*>(args.out[number++]);
      const int64_t num_bytes = to == nullptr ? 0 : program_.graph.type(id).num_bytes();
      if (!known.is_made) {
        known.received.emplace_back(to, to + num_bytes);
      } else if (num_bytes > 0) {
        std::memcpy(to, known.received[number - 1].data(), static_cast<size_t>(num_bytes));
      }
    }
  }
  known.is_made = true;
  known.sent = sent;
}

}  // namespace hearth::exec
