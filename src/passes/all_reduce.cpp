#include "passes/all_reduce.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"
#include "ops/transfer/transfer.h"

namespace hearth::passes {
namespace {

using ir::ValueId;
using Bucket = std::vector<ValueId>;

std::vector<Bucket> make_buckets(const TrainGraph& train, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket small;
  int64_t small_bytes = 0;
  const auto close = [&] {
    if (!small.empty()) buckets.push_back(std::move(small));
    small = {};
    small_bytes = 0;
  };
  for (const ValueId value : train.shared) {
    const int64_t num_bytes = train.graph.type(value).num_bytes();
    if (num_bytes >= bucket_bytes) {
      buckets.push_back({value});
      continue;
    }
    small.push_back(value);
    small_bytes += num_bytes;
    if (small_bytes >= bucket_bytes || std::ssize(small) == ops::kMostPieces) close();
  }
  close();
  return buckets;
}

class AllReduce {
 public:
  AllReduce(TrainGraph& train, const AllReduceOptions& options)
      : train_(train),
        graph_(train.graph),
        through_host_(options.through_host),
        buckets_(make_buckets(train, options.bucket_bytes)),
        missing_(train.shared.begin(), train.shared.end()) {}

  void run() {
    std::set<ValueId> late = missing_;
    std::vector<ir::Node> behind;
    for (ir::Node& node : std::exchange(graph_.nodes, {})) {
      if (std::ranges::any_of(node.inputs, [&](ValueId in) { return late.contains(in); })) {
        late.insert(node.outputs.begin(), node.outputs.end());
        behind.push_back(std::move(node));
      } else {
        append(std::move(node));
        send_what_is_there();
      }
    }
    HEARTH_CHECK(num_sent_ == buckets_.size());
    for (ir::Node& node : behind) {
      for (size_t k = 0; k < node.inputs.size(); ++k) replace(node, k);
      append(std::move(node));
    }
    for (ValueId& out : graph_.outputs) out = sum_of(out);
    for (Gradient& gradient : train_.gradients) gradient.gradient = sum_of(gradient.gradient);
  }

 private:
  ValueId sum_of(ValueId id) const {
    const auto found = sums_.find(id);
    return found == sums_.end() ? id : found->second;
  }

  /// What a node overwrites stays its own where the sum is a copy.
  void replace(ir::Node& node, size_t k) const {
    const bool overwrites = std::ranges::count(node.op->writes, static_cast<int>(k)) > 0;
    if (!overwrites || !through_host_) node.inputs[k] = sum_of(node.inputs[k]);
  }

  void append(ir::Node node) {
    for (const ValueId out : node.outputs) {
      graph_.value(out).producer = static_cast<ir::NodeId>(graph_.nodes.size());
      missing_.erase(out);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void send_what_is_there() {
    const auto is_there = [&](ValueId value) { return !missing_.contains(value); };
    while (num_sent_ < buckets_.size() && std::ranges::all_of(buckets_[num_sent_], is_there))
      send(buckets_[num_sent_]);
  }

  void send(const Bucket& bucket) {
    const std::string name = fmt::format("bucket {}", num_sent_++);
    Bucket sent = bucket;
    if (through_host_) {
      for (ValueId& value : sent) value = graph_.add1(ops::stash, {value}, {}, name);
    }
    const std::vector<ValueId> sums = graph_.add(ops::all_reduce, sent, {}, name);
    for (size_t i = 0; i < bucket.size(); ++i)
      sums_[bucket[i]] = through_host_ ? graph_.add1(ops::fetch, {sums[i]}, {}, name) : sums[i];
  }

  TrainGraph& train_;
  ir::Graph& graph_;
  bool through_host_;
  std::vector<Bucket> buckets_;
  std::set<ValueId> missing_;  ///< of the shared values, those that no node has made yet
  size_t num_sent_ = 0;
  std::map<ValueId, ValueId> sums_;
};

}  // namespace

void all_reduce(TrainGraph& train, const AllReduceOptions& options) {
  if (!train.shared.empty()) AllReduce(train, options).run();
}

}  // namespace hearth::passes
