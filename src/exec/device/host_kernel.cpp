#include "exec/device/host_kernel.h"

#include "backend/gpu/device.h"
#include "passes/memory/storage.h"

namespace hearth::exec {
namespace {

/// Offsets in the scratch memory of inputs, outputs and workspace. An output that overwrites an input has
/// that input's offset.
struct Layout {
  std::vector<int64_t> in_bytes, in_offsets, out_bytes, out_offsets;
  int64_t workspace = 0, total = 0;

  Layout(const ir::OpDef& op, const ir::NodeView& view, int64_t workspace_bytes) {
    for (size_t i = 0; i < view.in.size(); ++i) {
      in_bytes.push_back(view.has_input(i) ? view.in[i].num_bytes() : 0);
      in_offsets.push_back(take(in_bytes.back()));
    }
    for (size_t k = 0; k < view.out.size(); ++k) {
      const int written = k < op.writes.size() ? op.writes[k] : -1;
      out_bytes.push_back(view.out[k].num_bytes());
      out_offsets.push_back(written < 0 ? take(out_bytes.back()) : in_offsets[static_cast<size_t>(written)]);
    }
    workspace = take(workspace_bytes);
  }

 private:
  int64_t take(int64_t num_bytes) {
    const int64_t at = total;
    total += passes::padded_bytes(num_bytes);
    return at;
  }
};

}  // namespace

ir::Kernel host_kernel(const ir::OpDef& op, const ir::NodeView& view, std::shared_ptr<HostScratch> scratch) {
  ir::Kernel kernel = op.cpu(view);
  const Layout layout(op, view, kernel.workspace_bytes);
  scratch->reserve(static_cast<size_t>(layout.total));
  const auto run = [layout, kernel = std::move(kernel.run), scratch = std::move(scratch),
                    in = std::vector<void*>(view.in.size()),
                    out = std::vector<void*>(view.out.size())](const ir::KernelArgs& args) mutable {
    std::byte* base = scratch->data();
    for (size_t i = 0; i < in.size(); ++i) {
      in[i] = args.in[i] == nullptr ? nullptr : base + layout.in_offsets[i];
      if (in[i] != nullptr)
        args.stream->copy_out(in[i], static_cast<const std::byte*>(args.in[i]), layout.in_bytes[i]);
    }
    args.stream->synchronize();
    for (size_t k = 0; k < out.size(); ++k) out[k] = base + layout.out_offsets[k];
    kernel({.in = in, .out = out, .workspace = base + layout.workspace, .threads = args.threads});
    for (size_t k = 0; k < out.size(); ++k)
      args.stream->copy_in(static_cast<std::byte*>(args.out[k]), out[k], layout.out_bytes[k]);
    args.stream->synchronize();
  };
  return {.run = run, .workspace_bytes = 0};
}

}  // namespace hearth::exec
