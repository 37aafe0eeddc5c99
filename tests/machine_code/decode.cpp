#include "decode.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "code_object.h"

namespace machine_code {
namespace {

/// The tables of one generation by encoding, opcode and name.
struct Lookup {
  std::map<std::pair<Encoding, int>, const Operation*> by_code;
  std::map<std::string, const Operation*, std::less<>> by_name;

  explicit Lookup(int generation) {
    for (const Table& table : generation == 11 ? gfx11_tables() : gfx12_tables()) {
      for (const Operation& op : table.operations) {
        by_code[{table.encoding, op.code}] = &op;
        if (table.encoding == Encoding::vop1 || table.encoding == Encoding::vop2)
          by_name.emplace(op.name, &op);
      }
    }
  }
};
/// Never destroyed: reports at exit ask it.
const Lookup& lookup(int generation) {
  static const auto *gfx11 = new Lookup(11), *gfx12 = new Lookup(12);
  return generation == 11 ? *gfx11 : *gfx12;
}

class Decoder {
 public:
  Decoder(int generation, const uint32_t* code) : generation_(generation), code_(code) {}

  Instruction decode() {
    const uint32_t w = code_[0];
    if (w >> 26 == 0x35)
      vop3();
    else if (w >> 24 == 0xcc)
      vop3p();
    else if (w >> 26 == 0x32)
      vopd();
    else if (w >> 26 == 0x36)
      ds();
    else if (w >> 26 == 0x3d)
      smem();
    else if (generation_ == 11 && w >> 26 == 0x37)
      flat11();
    else if (generation_ == 12 && (w >> 24 == 0xec || w >> 24 == 0xed || w >> 24 == 0xee))
      flat12();
    else if (generation_ == 11 && w >> 26 == 0x38)
      buffer11();
    else if (w >> 23 == 0x17d)
      sop1();
    else if (w >> 23 == 0x17e)
      sopc();
    else if (w >> 23 == 0x17f)
      sopp();
    else if (w >> 28 == 0xb)
      sopk();
    else if (w >> 30 == 2)
      sop2();
    else if (w >> 25 == 0x3f)
      vop1();
    else if (w >> 25 == 0x3e)
      vopc();
    else if (w >> 31 == 0)
      vop2();
    else
      unknown();
    if (out_.op->run == nullptr) {
      out_.by_hand = hand_written(out_.op->name);
      const bool by_machine = out_.encoding == Encoding::vopd || out_.encoding == Encoding::smem;
      if (out_.by_hand == nullptr && !by_machine)
        throw Fault{std::string("no rule for the instruction ") + out_.op->name};
    }
    if (out_.y != nullptr && out_.y->run == nullptr)
      throw Fault{std::string("no rule for the instruction ") + out_.y->name};
    out_.data = halves_of_data();
    list_registers();
    out_.unit = unit_of(out_.encoding, *out_.op);
    out_.cycles = static_cast<uint8_t>(cycles_of(out_.unit, generation_));
    out_.access_bytes = bytes_of_access(name());
    return std::move(out_);
  }

 private:
  /// Bits of the instruction, counted through its words.
  uint32_t bits(int high, int low) const {
    const uint64_t two = code_[low / 32] | (high / 32 > low / 32 ? uint64_t{code_[high / 32]} << 32 : 0);
    return static_cast<uint32_t>(two >> low % 32 & ((uint64_t{1} << (high - low + 1)) - 1));
  }
  static int32_t extended(uint32_t x, int width) {
    return static_cast<int32_t>(x << (32 - width)) >> (32 - width);
  }
  [[noreturn]] void unknown() const {
    throw Fault{"no encoding for the words " + hex(code_[0]) + " " + hex(code_[1])};
  }

  const Operation* find(Encoding encoding, uint32_t code) const {
    const auto& known = lookup(generation_).by_code;
    const auto at = known.find({encoding, static_cast<int>(code)});
    return at == known.end() ? nullptr : at->second;
  }
  void one(Encoding encoding, uint32_t code, int bytes) {
    out_.encoding = encoding;
    out_.op = find(encoding, code);
    out_.bytes = bytes;
    if (out_.op == nullptr) unknown();
  }
  std::string_view name() const { return out_.op->name; }
  void literal() {
    out_.literal = code_[out_.bytes / 4];
    out_.bytes += 4;
  }
  bool has_literal() const { return std::ranges::find(out_.s, kLiteral) != std::end(out_.s); }

  void sop1() {
    one(Encoding::sop1, bits(15, 8), 4);
    out_.d = static_cast<uint16_t>(bits(22, 16));
    out_.s[0] = static_cast<uint16_t>(bits(7, 0));
    if (has_literal()) literal();
  }
  void sop2() {
    one(Encoding::sop2, bits(29, 23), 4);
    out_.d = static_cast<uint16_t>(bits(22, 16));
    out_.s[0] = static_cast<uint16_t>(bits(7, 0));
    out_.s[1] = static_cast<uint16_t>(bits(15, 8));
    if (has_literal() || always_literal(name())) literal();
  }
  void sopc() {
    one(Encoding::sopc, bits(22, 16), 4);
    out_.s[0] = static_cast<uint16_t>(bits(7, 0));
    out_.s[1] = static_cast<uint16_t>(bits(15, 8));
    if (has_literal()) literal();
  }
  void sopk() {
    one(Encoding::sopk, bits(27, 23), 4);
    out_.d = static_cast<uint16_t>(bits(22, 16));
    out_.simm16 = static_cast<int16_t>(bits(15, 0));
    if (name() == "S_SETREG_IMM32_B32") literal();
  }
  void sopp() {
    one(Encoding::sopp, bits(22, 16), 4);
    out_.simm16 = static_cast<int16_t>(bits(15, 0));
  }
  void smem() {
    one(Encoding::smem, generation_ == 11 ? bits(25, 18) : bits(18, 13), 8);
    out_.d = static_cast<uint16_t>(bits(12, 6));
    out_.s[0] = static_cast<uint16_t>(bits(5, 0) * 2);
    out_.s[1] = static_cast<uint16_t>(bits(63, 57));
    out_.offset = generation_ == 11 ? extended(bits(52, 32), 21) : extended(bits(55, 32), 24);
  }

  static bool always_literal(std::string_view name) {
    return name.find("FMAAK") != name.npos || name.find("FMAMK") != name.npos;
  }
  /// A vector register of an operand of 16 bits: bit 7 says which half, in encodings of 32 bits.
  uint16_t short_register(uint32_t field, int width, uint8_t half) {
    if (width != 16 || field < 128) return static_cast<uint16_t>(kVector + field);
    out_.opsel |= half;
    return static_cast<uint16_t>(kVector + (field & 127));
  }
  /// Source 0 of VOP1, VOP2 and VOPC: an operand, or what says that another word follows.
  void short_source() {
    const uint32_t field = bits(8, 0);
    if (field == 250 || field == 233 || field == 234) {
      dpp(field, 32);
      out_.bytes = 8;
    } else {
      out_.s[0] = field >= kVector ? short_register(field - kVector, out_.op->bits[1], 1)
                                   : static_cast<uint16_t>(field);
      if (field == kLiteral) literal();
    }
  }
  void dpp(uint32_t field, int low) {
    out_.s[0] = static_cast<uint16_t>(kVector + bits(low + 7, low));
    Dpp& dpp = out_.dpp;
    if (field == 250) {
      dpp.row = true;
      dpp.control = static_cast<uint16_t>(bits(low + 16, low + 8));
      dpp.fetch_inactive = bits(low + 18, low + 18) != 0;
      dpp.bound_is_zero = bits(low + 19, low + 19) != 0;
      dpp.bank_mask = static_cast<uint8_t>(bits(low + 27, low + 24));
      dpp.row_mask = static_cast<uint8_t>(bits(low + 31, low + 28));
      out_.neg |= static_cast<uint8_t>(bits(low + 20, low + 20) | bits(low + 22, low + 22) << 1);
      out_.abs |= static_cast<uint8_t>(bits(low + 21, low + 21) | bits(low + 23, low + 23) << 1);
    } else {
      dpp.eight = true;
      dpp.fetch_inactive = field == 234;
      for (int i = 0; i < 8; ++i)
        dpp.select[static_cast<size_t>(i)] = static_cast<uint8_t>(bits(low + 10 + 3 * i, low + 8 + 3 * i));
    }
  }
  void vop1() {
    one(Encoding::vop1, generation_ == 11 ? bits(16, 9) : bits(15, 9), 4);
    short_source();
    const bool scalar = name() == "V_READFIRSTLANE_B32";
    out_.d = scalar ? static_cast<uint16_t>(bits(24, 17)) : short_register(bits(24, 17), out_.op->bits[0], 8);
  }
  void vop2() {
    one(Encoding::vop2, bits(30, 25), 4);
    if (always_literal(name())) literal();
    const bool known = out_.bytes == 8;
    if (known)
      out_.s[0] = static_cast<uint16_t>(bits(8, 0));
    else
      short_source();
    out_.s[1] = short_register(bits(16, 9), out_.op->bits[2], 2);
    out_.d = short_register(bits(24, 17), out_.op->bits[0], 8);
    if (out_.op->result) out_.scalar_d = kVcc;
  }
  void vopc() {
    one(Encoding::vopc, bits(24, 17), 4);
    short_source();
    out_.s[1] = short_register(bits(16, 9), out_.op->bits[2], 2);
    out_.scalar_d = name().starts_with("V_CMPX") ? kExec : kVcc;
  }
  void three_sources() {
    out_.s[0] = static_cast<uint16_t>(bits(40, 32));
    out_.s[1] = static_cast<uint16_t>(bits(49, 41));
    out_.s[2] = static_cast<uint16_t>(bits(58, 50));
    out_.neg = static_cast<uint8_t>(bits(63, 61));
    out_.clamp = bits(15, 15) != 0;
    for (int k = 0; k < 3; ++k) {
      if (out_.op->bits[k + 1] == 0) out_.s[k] = kNone;
    }
    if (out_.s[0] == 250 || out_.s[0] == 233 || out_.s[0] == 234) {
      dpp(out_.s[0], 64);
      out_.bytes = 12;
    } else if (has_literal()) {
      literal();
    }
  }
  void vop3() {
    const bool sd = find(Encoding::vop3sd, bits(25, 16)) != nullptr;
    one(sd ? Encoding::vop3sd : Encoding::vop3, bits(25, 16), 8);
    three_sources();
    out_.d = static_cast<uint16_t>(kVector + bits(7, 0));
    out_.omod = static_cast<uint8_t>(bits(60, 59));
    if (name().find("CNDMASK") != name().npos || name().find("_CO_CI_") != name().npos)
      out_.carry = static_cast<uint16_t>(bits(58, 50));
    if (out_.carry != kVcc) out_.s[2] = kNone;
    if (sd) {
      out_.scalar_d = static_cast<uint16_t>(bits(14, 8));
      return;
    }
    out_.abs |= static_cast<uint8_t>(bits(10, 8));
    out_.opsel = static_cast<uint8_t>(bits(14, 11));
    const bool compares = name().starts_with("V_CMP"),
               reads = name().starts_with("V_READLANE") || name().starts_with("V_S_");
    if (compares || reads || name() == "V_READFIRSTLANE_B32") out_.d = static_cast<uint16_t>(bits(7, 0));
    if (compares) out_.scalar_d = name().starts_with("V_CMPX") ? kExec : out_.d;
    if (compares) out_.d = kNone;
  }
  void vop3p() {
    one(Encoding::vop3p, bits(22, 16), 8);
    three_sources();
    out_.d = static_cast<uint16_t>(kVector + bits(7, 0));
    out_.neg_hi = static_cast<uint8_t>(bits(10, 8));
    out_.opsel = static_cast<uint8_t>(bits(13, 11));
    out_.opsel_hi = static_cast<uint8_t>(bits(60, 59) | bits(14, 14) << 2);
  }
  const Operation* half_of(uint32_t code) const {
    const Operation* pair = find(Encoding::vopd, code);
    if (pair == nullptr) unknown();
    const auto& names = lookup(generation_).by_name;
    const auto at = names.find("V_" + std::string(pair->name).substr(std::string_view("V_DUAL_").size()));
    if (at == names.end()) throw Fault{std::string("no rule for the instruction ") + pair->name};
    return at->second;
  }
  void vopd() {
    out_.encoding = Encoding::vopd;
    out_.bytes = 8;
    out_.op = half_of(bits(25, 22));
    out_.y = half_of(bits(21, 17));
    out_.d = static_cast<uint16_t>(kVector + bits(63, 56));
    out_.yd = static_cast<uint16_t>(kVector + (bits(55, 49) << 1 | (~bits(63, 56) & 1)));
    out_.s[0] = static_cast<uint16_t>(bits(8, 0));
    out_.s[1] = static_cast<uint16_t>(kVector + bits(16, 9));
    out_.ys[0] = static_cast<uint16_t>(bits(40, 32));
    out_.ys[1] = static_cast<uint16_t>(kVector + bits(48, 41));
    if (has_literal() || out_.ys[0] == kLiteral || always_literal(out_.op->name) ||
        always_literal(out_.y->name))
      literal();
  }
  void ds() {
    one(Encoding::ds, bits(25, 18), 8);
    out_.offset0 = static_cast<uint8_t>(bits(7, 0));
    out_.offset1 = static_cast<uint8_t>(bits(15, 8));
    out_.offset = static_cast<int32_t>(bits(15, 0));
    memory_registers(bits(39, 32), bits(47, 40), bits(63, 56));
    out_.s[2] = static_cast<uint16_t>(kVector + bits(55, 48));
  }
  void memory_registers(uint32_t address, uint32_t data, uint32_t d) {
    out_.s[0] = static_cast<uint16_t>(kVector + address);
    out_.s[1] = static_cast<uint16_t>(kVector + data);
    out_.d = static_cast<uint16_t>(kVector + d);
  }
  void flat11() {
    constexpr Encoding of_segment[] = {Encoding::flat, Encoding::scratch, Encoding::global};
    if (bits(17, 16) == 3) unknown();
    one(of_segment[bits(17, 16)], bits(24, 18), 8);
    memory_registers(bits(39, 32), bits(47, 40), bits(63, 56));
    out_.scalar_d = static_cast<uint16_t>(bits(54, 48));
    if (out_.encoding == Encoding::scratch && bits(55, 55) == 0) out_.s[0] = kNone;
    out_.offset = extended(bits(12, 0), 13);
    out_.returns = bits(14, 14) != 0 || !out_.op->stores;
  }
  void flat12() {
    constexpr Encoding of_segment[] = {Encoding::flat, Encoding::scratch, Encoding::global};
    one(of_segment[bits(25, 24)], bits(21, 14), 12);
    memory_registers(bits(71, 64), bits(62, 55), bits(39, 32));
    out_.scalar_d = static_cast<uint16_t>(bits(6, 0));
    if (out_.encoding == Encoding::scratch && bits(49, 49) == 0) out_.s[0] = kNone;
    out_.offset = extended(bits(95, 72), 24);
    out_.returns = (bits(54, 52) & 1) != 0 || !out_.op->stores;
  }

  /// Raw buffers take the rules of global memory; their place and size stand in four scalar registers.
  void buffer11() {
    one(Encoding::mubuf, bits(25, 18), 8);
    const std::string global = "GLOBAL" + std::string(out_.op->name).substr(6);
    for (const Table& table : gfx11_tables()) {
      if (table.encoding != Encoding::global) continue;
      const auto found = std::ranges::find(table.operations, global, &Operation::name);
      if (found == table.operations.end()) return;
      out_.op = &*found;
    }
    memory_registers(bits(39, 32), bits(47, 40), bits(47, 40));
    if (bits(54, 54) == 0) out_.s[0] = kNone;
    out_.resource = static_cast<uint16_t>(4 * bits(52, 48));
    out_.scalar_d = static_cast<uint16_t>(bits(63, 56));
    out_.offset = static_cast<int>(bits(11, 0));
    out_.returns = bits(14, 14) != 0 || !out_.op->stores;
  }

  Registers::Halves halves_of_data() const {
    if (name().find("D16_HI") != name().npos) return Registers::high;
    const bool half =
        name().find("D16") != name().npos || name().ends_with("STORE_B16") || name().ends_with("STORE_B8");
    return half ? Registers::low : Registers::both;
  }
  void use(uint16_t first, int width, Registers::Halves halves = Registers::both) {
    if (first == kNone || width == 0) return;
    if (first < 106 || first >= kVector)
      out_.used.push_back({first, static_cast<uint16_t>((width + 31) / 32), halves});
  }
  /// An operand of vector instructions, numbered as opsel numbers it.
  void use_operand(uint16_t first, int width, int number) {
    const bool half = width == 16 && first >= kVector && out_.encoding != Encoding::vop3p;
    use(first, width,
        !half                             ? Registers::both
        : (out_.opsel >> number & 1) != 0 ? Registers::high
                                          : Registers::low);
  }
  void list_registers() {
    const Operation& op = *out_.op;
    const bool of_caches =
        out_.by_hand != nullptr && (out_.encoding == Encoding::global || out_.encoding == Encoding::mubuf);
    if (of_caches) return;
    switch (out_.encoding) {
      case Encoding::smem:
        use(out_.s[0], 64);
        use(out_.s[1], 32);
        break;
      case Encoding::ds:
      case Encoding::flat:
      case Encoding::global:
      case Encoding::mubuf:
      case Encoding::scratch: {
        const bool wide =
            out_.encoding == Encoding::flat || (out_.encoding == Encoding::global && out_.scalar_d >= kNull);
        use(out_.s[0], wide ? 64 : 32);
        use(out_.s[1], op.stores || out_.by_hand != nullptr ? op.bits[1] : 0, out_.data);
        use(out_.s[2], op.stores ? op.bits[2] : 0);
        use(out_.scalar_d, out_.encoding == Encoding::global ? 64 : 32);
        if (out_.encoding == Encoding::mubuf) use(out_.resource, 128);
        break;
      }
      default:
        for (int k = 0; k < 3; ++k) use_operand(out_.s[k], op.bits[k + 1], k);
        use_operand(out_.d, op.bits[0], 3);
        use(out_.scalar_d, 32);
        use(out_.carry, 32);
        if (out_.y == nullptr) break;
        for (int k = 0; k < 3; ++k) use(out_.ys[k], out_.y->bits[k + 1]);
        use(out_.yd, 32);
    }
  }

  int generation_;
  const uint32_t* code_;
  Instruction out_;
};

}  // namespace

Instruction decode(int generation, const uint32_t* code) { return Decoder(generation, code).decode(); }

}  // namespace machine_code
