#include "passes/parallel/all_reduce.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"
#include "ops/transfer/transfer.h"

/// Overlaps all-reduce with the backward pass. Nodes that do not depend on an all-reduced value keep their
/// order, and each bucket is sent right after its last value is computed; nodes that read the results follow.
/// Without direct communication between GPUs, values are staged through the host by three ops: stash (copy to
/// host memory), the collective there, and fetch (copy back). These run in queues other than compute, and the
/// executor's waits order them. Every worker sends the buckets in the order of `shared`, so that their
/// collectives match.
namespace hearth::passes {
namespace {

using ir::ValueId;

/// A set of values that one collective reduces.
struct Bucket {
  std::vector<ValueId> values;
  int root = -1;
  DType wire = DType::f32;
};

/// When staging through the host: number of nodes between the last value of a bucket and the bucket's copy to
/// the host. After the copy, the next nodes would reuse the bucket's memory and therefore wait for the copy.
/// The copy is not delayed by this distance, because it runs in a separate queue.
constexpr int64_t kNumBetween = 4;
/// When staging through the host, a result is fetched only after this many later buckets were sent. Until
/// then, buckets have separate host memory.
constexpr size_t kBucketsInFlight = 2;

std::vector<Bucket> make_buckets(const TrainGraph& train, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  struct Open {
    std::vector<ValueId> values;
    int64_t num_bytes = 0;
  };
  using Kind = std::pair<int, DType>;  // root and wire dtype
  std::map<Kind, Open> open;
  const auto close = [&](const Kind& kind, Open& small) {
    if (!small.values.empty())
      buckets.push_back({.values = std::move(small.values), .root = kind.first, .wire = kind.second});
    small = {};
  };
  // All-reduces are last (root -1 sorts first): their values may depend on the results of reductions to one
  // root.
  const auto close_all = [&] {
    for (auto last = open.rbegin(); last != open.rend(); ++last) close(last->first, last->second);
  };
  int stage = 0;
  for (const Shared& shared : train.shared) {
    if (std::exchange(stage, shared.stage) != shared.stage) close_all();
    const int64_t num_bytes = train.graph.type(shared.value).num_bytes();
    if (num_bytes >= bucket_bytes) {
      buckets.push_back({.values = {shared.value}, .root = shared.root, .wire = shared.wire});
      continue;
    }
    const Kind kind{shared.root, shared.wire};
    Open& small = open[kind];
    small.values.push_back(shared.value);
    small.num_bytes += num_bytes;
    if (small.num_bytes >= bucket_bytes || std::ssize(small.values) == ops::kMaxPieces) close(kind, small);
  }
  close_all();
  return buckets;
}

class AllReduce {
 public:
  AllReduce(TrainGraph& train, const AllReduceOptions& options)
      : train_(train),
        graph_(train.graph),
        options_(options),
        buckets_(make_buckets(train, options.bucket_bytes)) {
    for (const Shared& shared : train.shared) {
      missing_.insert(shared.value);
      unsent_.insert(shared.value);
    }
  }

  void run() {
    std::vector<ir::Node> nodes = std::exchange(graph_.nodes, {});
    while (!nodes.empty()) {
      const size_t num_sent = num_sent_, num_nodes = nodes.size();
      nodes = append_independent_nodes(std::move(nodes));
      HEARTH_CHECK(num_sent_ > num_sent || nodes.size() < num_nodes);
    }
    HEARTH_CHECK(num_sent_ == buckets_.size());
    for (ValueId& out : graph_.outputs) out = sum_of(out);
    for (Gradient& gradient : train_.gradients) gradient.gradient = sum_of(gradient.gradient);
    for (const Spread& spread : train_.spread) send(spread);
  }

 private:
  /// Appends all nodes that do not depend on a result, and sends each bucket as soon as it is complete.
  /// Returns the other nodes, which must follow the results.
  std::vector<ir::Node> append_independent_nodes(std::vector<ir::Node> nodes) {
    std::set<ValueId> late = unsent_, read_late;
    const auto must_wait = [&](const ir::Node& node) {
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        if (late.contains(node.inputs[k]) || (overwrites(node, k) && read_late.contains(node.inputs[k])))
          return true;
      }
      return false;
    };
    std::vector<ir::Node> behind;
    for (ir::Node& node : nodes) {
      if (must_wait(node)) {
        late.insert(node.outputs.begin(), node.outputs.end());
        read_late.insert(node.inputs.begin(), node.inputs.end());
        behind.push_back(std::move(node));
      } else {
        for (size_t k = 0; k < node.inputs.size(); ++k) replace(node, k);
        append(std::move(node));
        send_complete_buckets();
      }
    }
    while (num_sent_ < made_at_.size()) send(buckets_[num_sent_]);
    if (options_.through_host) fetch_all_but(0);
    return behind;
  }

  ValueId sum_of(ValueId id) const {
    const auto found = sums_.find(id);
    return found == sums_.end() ? id : found->second;
  }

  /// Replaces input k by its all-reduced result. Not if the node overwrites the input and the result is a
  /// separate copy, because then the original value must be overwritten.
  void replace(ir::Node& node, size_t k) const {
    if (!overwrites(node, k) || !options_.through_host) node.inputs[k] = sum_of(node.inputs[k]);
  }

  void append(ir::Node node) {
    for (const ValueId out : node.outputs) {
      graph_.value(out).producer = static_cast<ir::NodeId>(graph_.nodes.size());
      missing_.erase(out);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void send_complete_buckets() {
    const auto is_there = [&](ValueId value) { return !missing_.contains(value); };
    ++num_kept_;
    while (made_at_.size() < buckets_.size() &&
           std::ranges::all_of(buckets_[made_at_.size()].values, is_there))
      made_at_.push_back(num_kept_);
    const int64_t num_between = options_.through_host ? kNumBetween : 0;
    while (num_sent_ < made_at_.size() && num_kept_ >= made_at_[num_sent_] + num_between)
      send(buckets_[num_sent_]);
  }

  void send(const Bucket& bucket) {
    const std::string name = fmt::format("bucket {}", num_sent_++);
    std::vector<ValueId> sent = bucket.values;
    if (options_.through_host) {
      for (ValueId& value : sent) value = graph_.add1(ops::stash, {value}, {}, name);
    }
    const std::vector<ValueId> sums = bucket.root < 0
                                          ? graph_.add(ops::all_reduce, sent, wire_of(bucket), name)
                                          : graph_.add(ops::reduce, sent, root_of(bucket.root), name);
    for (size_t i = 0; i < sums.size(); ++i) {
      unsent_.erase(bucket.values[i]);
      sums_[bucket.values[i]] = sums[i];
    }
    if (options_.through_host) fetch_all_but(kBucketsInFlight);
  }

  /// Copies results from the host to the GPU, oldest first, except for the `num_buckets` buckets that were
  /// sent last.
  void fetch_all_but(size_t num_buckets) {
    for (; num_fetched_ + num_buckets < num_sent_; ++num_fetched_) {
      const Bucket& bucket = buckets_[num_fetched_];
      const bool is_read = bucket.root < 0 || bucket.root == options_.rank;
      for (const ValueId value : bucket.values) {
        ValueId& sum = sums_[value];
        if (is_read) sum = graph_.add1(ops::fetch, {sum}, {}, fmt::format("bucket {}", num_fetched_));
      }
    }
  }

  void send(const Spread& spread) {
    const std::string name = graph_.value(spread.value).name;
    if (!options_.through_host) {
      graph_.add(ops::broadcast, {spread.value}, root_of(spread.root), name);
    } else if (spread.root == options_.rank) {
      const ValueId there = graph_.add1(ops::stash, {spread.value}, {}, name);
      graph_.add(ops::broadcast, {there}, root_of(spread.root), name);
    } else {
      ir::Attrs attrs = root_of(spread.root);
      const auto axes = graph_.type(spread.value).shape.axes();
      attrs.set("shape", std::vector<int64_t>(axes.begin(), axes.end()));
      const ValueId there = graph_.add1(ops::receive_broadcast, {}, attrs, name);
      graph_.add(ops::load, {spread.value, there}, {}, name);
    }
  }

  ir::Attrs device_attrs() const {
    return options_.on_gpu ? ir::Attrs{{ops::kOnGpu, int64_t{1}}} : ir::Attrs{};
  }
  ir::Attrs wire_of(const Bucket& bucket) const {
    ir::Attrs attrs = device_attrs();
    if (bucket.wire != DType::f32) attrs.set("wire", std::string(dtype_name(bucket.wire)));
    return attrs;
  }
  ir::Attrs root_of(int root) const {
    ir::Attrs attrs = device_attrs();
    attrs.set("root", int64_t{root});
    return attrs;
  }

  TrainGraph& train_;
  ir::Graph& graph_;
  const AllReduceOptions& options_;
  std::vector<Bucket> buckets_;
  std::set<ValueId> missing_;  ///< shared values that have not been computed yet
  std::set<ValueId> unsent_;
  int64_t num_kept_ = 0;  ///< number of nodes of the original graph that have been appended
  /// For each complete bucket, the value of num_kept_ when its last value was appended.
  std::vector<int64_t> made_at_;
  size_t num_sent_ = 0, num_fetched_ = 0;
  std::map<ValueId, ValueId> sums_;
};

}  // namespace

void all_reduce(TrainGraph& train, const AllReduceOptions& options) {
  if (!train.shared.empty()) AllReduce(train, options).run();
}

}  // namespace hearth::passes
