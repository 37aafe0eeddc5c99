#include "hub/weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/cpu/convert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "hub/adapter.h"
#include "hub/denoiser_adapter.h"
#include "hub/open_weights.h"
#include "hub/quantized_weights.h"
#include "ir/state_name.h"
#include "models/decoder/config.h"
#include "models/torch_dtype.h"

namespace hearth::hub {
namespace {

constexpr int64_t kChunk = 1 << 20;
/// Smallest magnitude that becomes infinity when rounded to f16.
constexpr float kTooLargeForF16 = 65520;

std::string memory_name(const engine::Engine& engine, const nn::Tensor& tensor, bool average) {
  const std::string averaged = ir::spell(ir::StateKind::average, tensor.name);
  return average && engine.plan().layout->find(averaged) != nullptr ? averaged : tensor.name;
}

const std::string& prefix_of(const engine::Engine& engine) {
  return engine.plan().options.adapter.file_prefix;
}

/// Returns the modules of a denoiser's LoRA; empty if the engine does not train one.
AdaptedModules denoiser_modules(const engine::Engine& engine) {
  if (!has_adapter(engine) || prefix_of(engine) != kDenoiserPrefix) return {};
  const engine::Plan& plan = engine.plan();
  return adapted_modules(plan.options.adapter, plan.tensors);
}

/// Returns the tensors to write to a weights file, with their names in the file: of an adapter run, only the
/// trained ones.
std::vector<std::pair<const nn::Tensor*, std::string>> saved_tensors(const engine::Engine& engine) {
  const bool adapter = has_adapter(engine);
  std::vector<std::pair<const nn::Tensor*, std::string>> saved;
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    if (adapter && !tensor.trainable) continue;
    saved.emplace_back(&tensor, (adapter ? prefix_of(engine) : "") + tensor.name);
  }
  return saved;
}

/// True if no value becomes infinity in f16.
bool fits_f16(std::span<const float> values) {
  return std::ranges::none_of(values, [](float value) { return std::abs(value) >= kTooLargeForF16; });
}

bool all_finite(std::span<const float> values) { return cpu::all_finite(values.data(), std::ssize(values)); }

/// Quantizes a tensor of a file and writes it to the engine's memory. Returns false if a value is not finite.
bool quantize_in(engine::Engine& engine, const nn::Tensor& tensor, const io::TensorView& view) {
  const int64_t rows = view.shape[0], columns = view.shape[1];
  std::vector<void*> parts;
  for (const ops::QuantizedPart& part : ops::quantized_parts(tensor.quantized, rows, columns))
    parts.push_back(engine.data(engine.plan().layout->at(tensor.name + std::string(part.suffix))));
  const auto* stored = dynamic_cast<const StoredQuantization*>(view.decoder.get());
  if (stored != nullptr && stored->copy_parts(view, tensor.quantized, parts)) return true;
  ops::Quantizer quantizer(tensor.quantized, rows, columns, parts);
  const int64_t count = rows * columns, piece = quantizer.piece();
  std::atomic<bool> is_finite = true;
  engine.threads().parallel_for((count + piece - 1) / piece, 1, [&](Range mine) {
    for (int64_t at = mine.begin * piece; at < std::min(mine.end * piece, count); at += piece) {
      const std::vector<float> values = floats_of(view, at, std::min(piece, count - at));
      if (!all_finite(values)) is_finite = false;
      if (is_finite) quantizer.add(at, values.data(), std::ssize(values));
    }
  });
  if (is_finite) quantizer.finish();
  return is_finite;
}

/// Copies a tensor of a file into the engine's memory: in chunks if memory and file have the same element
/// order, otherwise in one piece. Returns false if a value is not finite.
bool copy_in(engine::Engine& engine, const nn::Tensor& tensor, const io::TensorView& view) {
  const bool plain = nn::is_in_file_order(tensor.layout);
  if (tensor.quantized != ops::Quantization::none) {
    HEARTH_CHECK(plain);
    return quantize_in(engine, tensor, view);
  }
  const exec::PersistentBuffer& buffer = engine.plan().layout->at(tensor.name);
  if (buffer.role == ir::Role::remote) return true;
  const int64_t count = view.shape.num_elements();
  const int64_t chunk = plain ? kChunk : count;
  for (int64_t at = 0; at < count; at += chunk) {
    const int64_t size = std::min(chunk, count - at);
    std::vector<float> values = floats_of(view, at, size);
    if (!all_finite(values)) return false;
    if (!plain) {
      std::vector<float> memory(values.size());
      nn::from_file_order(tensor.layout, values.data(), memory.data());
      values.swap(memory);
    }
    cpu::store_f32(buffer.type.dtype, values.data(), engine.data(buffer), at, size);
  }
  return true;
}

/// True if this worker holds the tensor: in parallel training, frozen weights are only on the workers that
/// use them.
bool has(const engine::Engine& engine, const nn::Tensor& tensor) {
  std::string name = tensor.name;
  const Shape& shape = tensor.layout.file_shape;
  if (tensor.quantized != ops::Quantization::none)
    name += ops::quantized_parts(tensor.quantized, shape[0], shape[1])[0].suffix;
  return engine.plan().layout->find(name) != nullptr;
}

/// Throws a UserError if the adapter file has tensors of modules that have no adapter in the recipe and would
/// be ignored.
void check_no_extra_tensors(const std::vector<std::pair<const nn::Tensor*, std::string>>& saved,
                            const io::WeightFiles& files, const fs::path& path) {
  for (const io::TensorView& view : files.tensors()) {
    if (std::ranges::find(saved, view.name, [](const auto& pair) { return pair.second; }) != saved.end())
      continue;
    user_error("{}: '{}' does not belong to a module in adapter.targets", path.string(), view.name);
  }
}

constexpr std::string_view kHead = "lm_head.weight";
constexpr auto kTables = std::to_array<std::string_view>({"embed_tokens.weight", "wte.weight"});

bool is_without_effect(std::string_view name) {
  // Buffers of older transformers versions; attn.bias and attn.masked_bias are the causal masks of GPT-2.
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".num_batches_tracked") ||
         name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

bool same_values(const io::TensorView& a, const io::TensorView& b) {
  if (a.shape != b.shape || !is_floating(a.dtype) || !is_floating(b.dtype)) return false;
  if (dtype_bytes(a.dtype) < 2 || dtype_bytes(b.dtype) < 2) return false;
  const int64_t count = a.shape.num_elements();
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t size = std::min(kChunk, count - at);
    if (floats_of(a, at, size) != floats_of(b, at, size)) return false;
  }
  return true;
}

/// Throws a UserError if lm_head of a tied model differs from the embedding table: versions of transformers
/// disagree on which of the two to use.
void check_tied_head(const io::WeightFiles& files, const io::TensorView& head, const fs::path& path) {
  const auto table = std::ranges::find_if(files.tensors(), [](const io::TensorView& view) {
    return std::ranges::any_of(kTables, [&](std::string_view end) { return view.name.ends_with(end); });
  });
  const bool same = table != files.tensors().end() && same_values(head, *table);
  if (table != files.tensors().end()) files.release(*table);
  files.release(head);
  if (same) return;
  user_error(
      "{}: '{}' differs from the embedding table, but config.json ties the two; try tie_word_embeddings: "
      "false",
      path.string(), head.name);
}

}  // namespace

void refuse_not_finite(const fs::path& path, std::string_view name) {
  user_error("{}: '{}' has values that are infinite or NaN; try weights of an earlier step", path.string(),
             name);
}

std::string name_in(const io::WeightFiles& files, const std::string& name) {
  constexpr std::string_view kOuter = "transformer.";
  if (!name.starts_with(kOuter) || files.find(name) != nullptr) return name;
  std::string inner = name.substr(kOuter.size());
  return files.find(inner) != nullptr ? inner : name;
}

void check_leftovers(const io::WeightFiles& files, const std::set<std::string>& used, const fs::path& path) {
  for (const io::TensorView& view : files.tensors()) {
    if (used.contains(view.name) || is_without_effect(view.name)) continue;
    if (view.name == kHead) {
      check_tied_head(files, view, path);
      continue;
    }
    user_error("{}: '{}' is not a tensor of the model in config.json", path.string(), view.name);
  }
}

bool has_adapter(const engine::Engine& engine) { return engine.plan().options.adapter.rank > 0; }

const char* weights_name(const engine::Engine& engine) {
  return has_adapter(engine) ? kAdapterFile : kModelWeights;
}

DType main_dtype(const fs::path& model) {
  const io::WeightFiles files = open_weights(model);
  std::map<DType, int64_t> counts;
  for (const io::TensorView& view : files.tensors()) counts[view.dtype] += view.shape.num_elements();
  const auto most_common = std::ranges::max_element(counts, {}, &std::pair<const DType, int64_t>::second);
  const bool half =
      most_common != counts.end() && (most_common->first == DType::bf16 || most_common->first == DType::f16);
  return half ? most_common->first : DType::f32;
}

DType config_dtype(std::string_view json, const std::string& where) {
  const auto config = parse_json_object<nlohmann::json>(json, where);
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_string())
      return models::dtype_of_torch_name(found->get<std::string>()).value_or(DType::f32);
  }
  return DType::f32;
}

std::vector<float> memory_values(const io::WeightFiles& files, const fs::path& path,
                                 const nn::Tensor& tensor) {
  const io::TensorView* found = files.find(tensor.name);
  if (found == nullptr || found->shape != tensor.layout.file_shape || !is_floating(found->dtype) ||
      dtype_bytes(found->dtype) < 2) {
    user_error("{}: expected '{}' with shape {}, {}; try the recipe that these weights were trained with",
               path.string(), tensor.name, to_string(tensor.layout.file_shape),
               found == nullptr ? "which is missing" : "found shape " + to_string(found->shape));
  }
  const std::vector<float> file = floats_of(*found, 0, found->shape.num_elements());
  files.release(*found);
  if (!std::ranges::all_of(file, [](float value) { return std::isfinite(value); }))
    refuse_not_finite(path, tensor.name);
  std::vector<float> memory(file.size());
  nn::from_file_order(tensor.layout, file.data(), memory.data());
  return memory;
}

void save_weights(const engine::Engine& engine, const fs::path& path, bool average, DType dtype) {
  const auto saved = saved_tensors(engine);
  const auto memory_of = [&](size_t i) {
    return engine::values(engine, memory_name(engine, *saved[i].first, average));
  };
  std::vector<io::TensorView> views;
  for (size_t i = 0; i < saved.size(); ++i) {
    const nn::Tensor& tensor = *saved[i].first;
    const bool wide = tensor.adapter || (dtype == DType::f16 && !fits_f16(memory_of(i)));
    views.push_back({.name = saved[i].second,
                     .dtype = wide ? DType::f32 : dtype,
                     .shape = tensor.layout.file_shape,
                     .bytes = {}});
  }
  const AdaptedModules modules = denoiser_modules(engine);
  std::map<std::string, std::string> metadata;
  if (!modules.empty()) metadata = diffusers_metadata(modules);
  std::vector<float> file;
  std::vector<std::byte> bytes;
  const auto bytes_of = [&](size_t i) -> std::span<const std::byte> {
    const std::span<const float> memory = memory_of(i);
    file.resize(memory.size());
    nn::to_file_order(saved[i].first->layout, memory.data(), file.data());
    if (const auto factor = static_cast<float>(file_factor(modules, saved[i].second)); factor != 1)
      for (float& value : file) value *= factor;
    if (views[i].dtype == DType::f32) return std::as_bytes(std::span(file));
    bytes.resize(file.size() * static_cast<size_t>(dtype_bytes(views[i].dtype)));
    cpu::store_f32(views[i].dtype, file.data(), bytes.data(), 0, std::ssize(file));
    return bytes;
  };
  replace_file(
      path, [&](const fs::path& temporary) { io::write_safetensors(temporary, views, bytes_of, metadata); });
}

void load_weights(engine::Engine& engine, const fs::path& path) {
  const auto saved = saved_tensors(engine);
  const auto load = [&](const io::WeightFiles& files) {
    for (const auto& [tensor, name] : saved) load_tensor(engine, *tensor, name, files, path);
    if (has_adapter(engine)) check_no_extra_tensors(saved, files, path);
  };
  if (has_adapter(engine) && prefix_of(engine) == kDenoiserPrefix) return load(DenoiserAdapter(path).files());
  load(io::WeightFiles(path));
}

void load_tensor(engine::Engine& engine, const nn::Tensor& tensor, const std::string& name,
                 const io::WeightFiles& files, const fs::path& path) {
  const io::TensorView* found = files.find(name);
  if (found == nullptr) {
    user_error("{}: expected a tensor '{}' of the model{}", path.string(), name,
               did_you_mean(name, files.names()));
  }
  if (found->shape != tensor.layout.file_shape || !is_floating(found->dtype) ||
      (dtype_bytes(found->dtype) < 2 && !found->scale)) {
    user_error(
        "{}: expected '{}' with shape {}, found shape {} and dtype {}; try weights of the same model and "
        "number of classes",
        path.string(), name, to_string(tensor.layout.file_shape), to_string(found->shape),
        dtype_name(found->dtype));
  }
  if (has(engine, tensor) && !copy_in(engine, tensor, *found)) refuse_not_finite(path, name);
  files.release(*found);
  engine::copy_to_states(engine, tensor.name);
}

void check_weights(const ModelFolder& model) {
  models::read_decoder_json(model.model / kModelConfig);
  io::WeightFiles{model.weights};
  if (!model.adapter.empty()) io::WeightFiles{adapter_weights(model.adapter)};
}

void initialize_frozen(engine::Engine& engine) {
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    if (engine.plan().layout->at(tensor.name).role != ir::Role::frozen) continue;
    std::vector<float> values(static_cast<size_t>(tensor.layout.file_shape.num_elements()));
    nn::initialize(tensor, engine.plan().options.seed, values, engine.threads());
    if (!nn::is_in_file_order(tensor.layout)) {
      std::vector<float> file(values.size());
      nn::to_file_order(tensor.layout, values.data(), file.data());
      values.swap(file);
    }
    const io::TensorView drawn{.name = tensor.name,
                               .dtype = DType::f32,
                               .shape = tensor.layout.file_shape,
                               .bytes = std::as_bytes(std::span(values))};
    HEARTH_CHECK(copy_in(engine, tensor, drawn));
  }
}

namespace {

/// Loads tensors from a file or folder, which must not contain others unless `has_more`. Names in the file
/// are those of the tensors without their first `num_dropped` characters.
void load_all(engine::Engine& engine, std::span<const nn::Tensor> tensors, size_t num_dropped,
              const fs::path& path, bool has_more = false) {
  const io::WeightFiles files = open_weights(path);
  std::set<std::string> used;
  for (const nn::Tensor& tensor : tensors) {
    if (tensor.adapter) continue;
    const std::string name = name_in(files, tensor.name.substr(num_dropped));
    load_tensor(engine, tensor, name, files, path);
    used.insert(name);
  }
  if (!has_more) check_leftovers(files, used, path);
}

}  // namespace

void load_model(engine::Engine& engine, const fs::path& path) {
  load_all(engine, engine.plan().tensors, 0, path);
}

void load_teacher(engine::Engine& engine, const fs::path& path, bool has_more) {
  load_all(engine, engine.plan().teacher_tensors, nn::kTeacherPrefix.size(), path, has_more);
}

void load_model(engine::Engine& engine, const ModelFolder& model) {
  load_model(engine, model.weights);
  if (has_adapter(engine)) load_weights(engine, adapter_weights(model.adapter));
}

}  // namespace hearth::hub
