#include "models/decoder/rope.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "models/decoder/config_reader.h"

namespace hearth::models {
namespace {

constexpr int64_t kMaxPositions = int64_t{1} << 32;
/// Accepted keys of rope_scaling and rope_parameters: those that transformers reads or is known to ignore.
constexpr std::array kKnownKeys = {"rope_type",        "type",
                                   "rope_theta",       "partial_rotary_factor",
                                   "factor",           "original_max_position_embeddings",
                                   "attention_factor", "beta_fast",
                                   "beta_slow",        "mscale",
                                   "mscale_all_dim",   "truncate",
                                   "short_factor",     "long_factor",
                                   "low_freq_factor",  "high_freq_factor",
                                   "finetuned"};

/// The two objects with RoPE settings, config.json and its member rope_scaling or rope_parameters
/// (`scaling`), and defaults.
struct Source {
  const ConfigReader& config;
  const ConfigReader& scaling;
  const RopeDefaults& defaults;
  RopeSizes sizes;
  bool is_version_4;  ///< true if `scaling` is rope_scaling, the key of transformers version 4
};

double positive(const ConfigReader& reader, const char* key, double default_value) {
  const double value = reader.number(key, default_value);
  if (!(value > 0)) reader.fail(key, "a positive number");
  return value;
}

int64_t positions(const ConfigReader& reader, int64_t default_value) {
  return reader.integer("original_max_position_embeddings", default_value, 1, kMaxPositions);
}

/// Returns a number that is in `config` or in `scaling`. Throws a UserError if both have different values.
double from_either(const ConfigReader& config, const ConfigReader& scaling, const char* key,
                   double default_value) {
  const double outer = config.number(key, default_value);
  const double inner = scaling.number(key, outer);
  if (config.has(key) && inner != outer)
    scaling.fail(key, fmt::format("{} as in the enclosing object", outer));
  return inner;
}

void read_default(const Source&, RopeOptions&) {}

void read_linear(const Source& in, RopeOptions& rope) { rope.factor = positive(in.scaling, "factor", 1); }

/// Returns the context length before extension. Throws a UserError if transformers 4, which reads it from
/// `scaling`, and transformers 5, which prefers the key of the config, would read different values.
int64_t original_positions(const Source& in) {
  const int64_t inner = positions(in.scaling, in.sizes.max_positions);
  if (in.config.has("original_max_position_embeddings") && positions(in.config, inner) != inner) {
    in.config.fail("original_max_position_embeddings", fmt::format("{} as in {}", inner, in.scaling.where()));
  }
  return inner;
}

void read_llama3(const Source& in, RopeOptions& rope) {
  rope.factor = positive(in.scaling, "factor", 1);
  rope.low_freq_factor = positive(in.scaling, "low_freq_factor", 1);
  rope.high_freq_factor = positive(in.scaling, "high_freq_factor", 4);
  rope.original_positions = original_positions(in);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    in.scaling.fail("high_freq_factor", "a number above low_freq_factor");
}

/// YaRN's factor on cos and sin, 0.1 * scale * ln(factor) + 1, where `factor` is the context extension.
double yarn_magnitude(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void read_yarn(const Source& in, RopeOptions& rope) {
  const ConfigReader& scaling = in.scaling;
  rope.factor = positive(scaling, "factor", 1);
  rope.original_positions = original_positions(in);
  if (!(rope.theta > 1)) user_error("{}: expected a rope_theta above 1, got {}", scaling.where(), rope.theta);
  // Zero counts as absent, as in transformers (Python's `or`).
  const auto or_else = [&](const char* key, double default_value) {
    const double value = scaling.number(key, default_value);
    return value == 0 ? default_value : value;
  };
  rope.beta_fast = or_else("beta_fast", rope.beta_fast);
  rope.beta_slow = or_else("beta_slow", rope.beta_slow);
  if (!(rope.beta_slow > 0) || rope.beta_fast < rope.beta_slow)
    scaling.fail(scaling.has("beta_fast") ? "beta_fast" : "beta_slow", "0 < beta_slow <= beta_fast");
  rope.whole_bounds = scaling.flag("truncate", true);
  const double scale = or_else("mscale", 0), all = or_else("mscale_all_dim", 0);
  rope.attention_factor = scale != 0 && all != 0
                              ? yarn_magnitude(rope.factor, scale) / yarn_magnitude(rope.factor, all)
                              : yarn_magnitude(rope.factor, 1);
  rope.attention_factor = positive(scaling, "attention_factor", rope.attention_factor);
}

/// LongRoPE's factor on cos and sin, sqrt(1 + ln stretch / ln original), where `stretch` is the ratio of
/// extended and original context length.
double longrope_magnitude(double stretch, int64_t original) {
  if (stretch <= 1) return 1;
  return std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(original)));
}

/// Throws a UserError if transformers 4 would compute something else than transformers 5: version 4 reads the
/// original context length from the config only (`outside`: true if it is there), and then ignores `factor`.
void check_longrope_of_version_4(const Source& in, const RopeOptions& rope, double ratio, bool outside) {
  if (!outside && rope.original_positions != in.sizes.max_positions) {
    in.scaling.fail(
        "original_max_position_embeddings",
        "this key next to \"max_position_embeddings\", where every version of transformers reads it,");
  }
  if (in.scaling.has("attention_factor")) return;
  if (outside && rope.factor != ratio)
    in.scaling.fail("factor", fmt::format("{}, the ratio of the two numbers of positions,", ratio));
  if (!outside && !in.scaling.has("factor")) {
    user_error(
        "{}: expected \"factor\", or \"original_max_position_embeddings\" next to "
        "\"max_position_embeddings\", got neither",
        in.scaling.where());
  }
}

void read_longrope(const Source& in, RopeOptions& rope) {
  const bool outside =
      in.config.has("original_max_position_embeddings") || in.defaults.original_positions > 0;
  if (!outside) rope.original_positions = positions(in.scaling, in.sizes.max_positions);
  const double ratio =
      static_cast<double>(in.sizes.max_positions) / static_cast<double>(rope.original_positions);
  rope.factor = positive(in.scaling, "factor", ratio);
  if (in.is_version_4) check_longrope_of_version_4(in, rope, ratio, outside);
  rope.attention_factor =
      positive(in.scaling, "attention_factor", longrope_magnitude(rope.factor, rope.original_positions));
  rope.short_factor = in.scaling.numbers("short_factor");
  rope.long_factor = in.scaling.numbers("long_factor");
}

struct RopeType {
  const char* name;
  void (*read)(const Source&, RopeOptions&);
  std::vector<const char*> required;
};
const std::vector<RopeType>& rope_types() {
  static const std::vector<RopeType> types = {
      {"default", read_default, {}},
      {"linear", read_linear, {"factor"}},
      {"llama3",
       read_llama3,
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
      {"yarn", read_yarn, {"factor"}},
      {"longrope", read_longrope, {"short_factor", "long_factor"}}};
  return types;
}

/// Returns "rope_type", or its older name "type".
std::string type_of(const ConfigReader& scaling, const RopeDefaults& defaults) {
  const std::string old = scaling.text("type", scaling.text("rope_type", "default"));
  const std::string type = scaling.text("rope_type", old);
  if (type != old) scaling.fail("type", fmt::format("{} as in \"rope_type\"", type));
  return defaults.is_phi && (type == "su" || type == "yarn") ? "longrope" : type;
}

const RopeType& find_type(const ConfigReader& scaling, const std::string& name, bool is_phi) {
  std::vector<std::string> names;
  for (const RopeType& type : rope_types()) {
    // transformers supports only these types for Phi models.
    if (is_phi && type.name != std::string_view("default") && type.name != std::string_view("longrope"))
      continue;
    if (name == type.name) return type;
    names.emplace_back(type.name);
  }
  user_error("{}: expected rope_type {}, got '{}'", scaling.where(), fmt::join(names, ", "), name);
}

void check_keys(const ConfigReader& scaling, const RopeType& type) {
  for (const std::string& key : scaling.keys()) {
    if (std::ranges::find(kKnownKeys, key) != kKnownKeys.end()) continue;
    user_error("{}: the RoPE setting '{}' is not supported", scaling.where(), key);
  }
  for (const char* key : type.required) {
    if (!scaling.has(key))
      user_error("{}: expected the key \"{}\" for rope_type {}, got none", scaling.where(), key, type.name);
  }
}

int64_t rotary_size(const RopeOptions& rope, int64_t head_size) {
  return static_cast<int64_t>(static_cast<double>(head_size) * rope.rotary_share);
}

void check_sizes(const RopeOptions& rope, const Source& in) {
  const int64_t rotary = rotary_size(rope, in.sizes.head_size);
  if (!(rope.theta > 0) || rotary < 2 || rotary > in.sizes.head_size || rotary % 2 != 0) {
    user_error(
        "{}: RoPE must rotate an even number of the {} elements of a head, but partial_rotary_factor is {} "
        "(rope_theta {})",
        in.scaling.where(), in.sizes.head_size, rope.rotary_share, rope.theta);
  }
  if (rope.rotary_share != 1 && !in.defaults.is_phi) {
    user_error(
        "{}: expected no partial_rotary_factor, which transformers does not support for this model_type, got "
        "{}",
        in.scaling.where(), rope.rotary_share);
  }
  if (rope.type != "longrope") return;
  for (const auto* list : {&rope.short_factor, &rope.long_factor}) {
    if (std::ssize(*list) == rotary / 2) continue;
    user_error("{}: expected {} numbers in short_factor and long_factor, got {}", in.scaling.where(),
               rotary / 2, list->size());
  }
}

RopeOptions read_options(const Source& in, double theta) {
  const std::string name = type_of(in.scaling, in.defaults);
  const RopeType& type = find_type(in.scaling, name, in.defaults.is_phi);
  check_keys(in.scaling, type);
  RopeOptions rope{.type = type.name, .theta = theta};
  const int64_t original =
      in.defaults.original_positions > 0 ? in.defaults.original_positions : in.sizes.max_positions;
  rope.original_positions = positions(in.config, original);
  rope.rotary_share = from_either(in.config, in.scaling, "partial_rotary_factor", 1);
  type.read(in, rope);
  check_sizes(rope, in);
  return rope;
}

/// Returns a frequency scaled by Llama 3.1's rule: frequencies with long wavelengths are divided by `factor`,
/// those with short wavelengths kept, those in between interpolated.
double llama3_frequency(const RopeOptions& rope, double frequency) {
  const double wave = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(rope.original_positions);
  if (wave < original / rope.high_freq_factor) return frequency;
  if (wave > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// YaRN's rule for scaling frequencies: element pairs that rotate more than beta_fast times within the
/// original context keep their frequency; for pairs that rotate less than beta_slow times it is divided by
/// `factor`; pairs in between are interpolated by their index.
class YarnRamp {
 public:
  YarnRamp(const RopeOptions& rope, int64_t rotary) : factor_(rope.factor) {
    const auto size = static_cast<double>(rotary);
    const auto index_of = [&](double turns) {
      const double wave = static_cast<double>(rope.original_positions) / (turns * 2 * std::numbers::pi);
      return size * std::log(wave) / (2 * std::log(rope.theta));
    };
    low_ = index_of(rope.beta_fast);
    high_ = index_of(rope.beta_slow);
    if (rope.whole_bounds) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, size - 1);
    if (low_ == high_) high_ += 0.001;
  }
  double stretched(double frequency, int64_t index) const {
    const double share = std::clamp((static_cast<double>(index) - low_) / (high_ - low_), 0.0, 1.0);
    return share * frequency / factor_ + (1 - share) * frequency;
  }

 private:
  double factor_, low_, high_;
};

}  // namespace

RopeOptions read_rope(const ConfigReader& reader, const RopeDefaults& defaults, const RopeSizes& sizes) {
  // If rope_scaling is present, transformers 4 and 5 ignore rope_parameters.
  if (const auto scaling = reader.object("rope_scaling")) {
    if (!scaling->has("rope_type") && !scaling->has("type"))
      user_error("{}: expected the key \"rope_type\", got none", scaling->where());
    const double theta = reader.number("rope_theta", defaults.theta);
    if (scaling->number("rope_theta", theta) != theta)
      scaling->fail("rope_theta", fmt::format("the {} of this config", theta));
    return read_options({reader, *scaling, defaults, sizes, true}, theta);
  }
  const auto parameters = reader.object("rope_parameters");
  const ConfigReader& scaling = parameters ? *parameters : ConfigReader::none(reader.where());
  return read_options({reader, scaling, defaults, sizes, false},
                      from_either(reader, scaling, "rope_theta", defaults.theta));
}

namespace {

/// The members full_attention and sliding_attention of rope_parameters; empty objects if absent.
struct ParametersByLayer {
  explicit ParametersByLayer(const ConfigReader& reader)
      : full(ConfigReader::none(reader.where())), local(ConfigReader::none(reader.where())) {
    const auto both = reader.object("rope_parameters");
    if (!both) return;
    for (const std::string& key : both->keys()) {
      if (key == "full_attention" || key == "sliding_attention") continue;
      user_error("{}: expected full_attention and sliding_attention, got '{}'", both->where(), key);
    }
    if (const auto found = both->object("full_attention")) full.emplace(*found);
    if (const auto found = both->object("sliding_attention")) local.emplace(*found);
  }
  std::optional<ConfigReader> full, local;
};

RopeOptions read_local(const ConfigReader& reader, const ConfigReader& local, double theta) {
  const double outer = positive(reader, "rope_local_base_freq", theta);
  const double inner = positive(local, "rope_theta", outer);
  if (reader.has("rope_local_base_freq") && inner != outer)
    local.fail("rope_theta", fmt::format("the rope_local_base_freq of this config, {},", outer));
  for (const std::string& key : local.keys()) {
    if (key == "rope_theta" || (key == "rope_type" && local.text("rope_type", "") == "default")) continue;
    local.fail(key.c_str(),
               "no value, because sliding attention supports only rope_theta and rope_type default,");
  }
  return {.theta = inner};
}

/// Throws a UserError if rope_parameters has keys that rope_scaling lacks, because transformers 5 would merge
/// both.
void check_merged(const ConfigReader& full, const ConfigReader& scaling) {
  if (!scaling.has("rope_type")) user_error("{}: expected the key \"rope_type\", got none", scaling.where());
  for (const std::string& key : full.keys()) {
    if (key == "rope_theta" || key == "rope_type" || scaling.has(key.c_str())) continue;
    full.fail(key.c_str(), "no value, because rope_scaling does not have this key,");
  }
}

/// Throws a UserError if transformers 4 and 5 would use different thetas. Version 4 reads only rope_theta,
/// for all layers, and has another default than version 5, which uses rope_theta for full attention only.
void check_equal_thetas(const ConfigReader& reader, double full, double local) {
  if (full != local) {
    user_error(
        "{}: rope_theta is {} for full_attention, but {} for sliding_attention; set both to the same value "
        "in "
        "\"rope_parameters\"",
        reader.where(), full, local);
  }
  if (!reader.has("rope_theta") && !reader.has("rope_parameters"))
    user_error(
        "{}: the key \"rope_theta\" is missing, and versions of transformers assume different values; add it",
        reader.where());
}

}  // namespace

RopesByLayer read_ropes_by_layer(const ConfigReader& reader, const RopeDefaults& defaults,
                                 const RopeSizes& sizes) {
  const ParametersByLayer parameters(reader);
  const double theta = from_either(reader, *parameters.full, "rope_theta", defaults.theta);
  const RopeOptions local = read_local(reader, *parameters.local, defaults.local_theta);
  if (defaults.needs_equal_thetas) check_equal_thetas(reader, theta, local.theta);
  if (const auto scaling = reader.object("rope_scaling")) {
    check_merged(*parameters.full, *scaling);
    if (scaling->number("rope_theta", theta) != theta)
      scaling->fail("rope_theta", fmt::format("the {} of this config", theta));
    return {.full = read_options({reader, *scaling, defaults, sizes, true}, theta), .local = local};
  }
  return {.full = read_options({reader, *parameters.full, defaults, sizes, false}, theta), .local = local};
}

RopeTable rope_table(const RopeOptions& rope, int64_t head_size) {
  const int64_t rotary = rotary_size(rope, head_size);
  RopeTable table{.inv_freq = {}, .scale = rope.attention_factor};
  for (int64_t i = 0; i < rotary / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
    if (rope.type == "linear") frequency /= rope.factor;
    if (rope.type == "llama3") frequency = llama3_frequency(rope, frequency);
    if (rope.type == "yarn") frequency = YarnRamp(rope, rotary).stretched(frequency, i);
    if (rope.type == "longrope") {
      table.long_inv_freq.push_back(frequency / rope.long_factor[static_cast<size_t>(i)]);
      frequency /= rope.short_factor[static_cast<size_t>(i)];
    }
    table.inv_freq.push_back(frequency);
  }
  if (rope.type == "longrope") table.original = rope.original_positions;
  return table;
}

}  // namespace hearth::models
