# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=False
"""Kernels: the loops that every tuple passes, compiled.

Rule 1: each kernel does what a piece of Python in Sparkbolt does, with the same results; that piece stands in its
docstring and stays the reference. A kernel decides nothing that the reference does not decide.
Rule 2: an exception of user code is handed to Sparkbolt as it was raised; no kernel catches anything else.
Rule 3: a kernel holds no reference to a tuple while user code is not running, since its reference count proves that
user code has not kept it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_SetItem
from cpython.list cimport PyList_Append, PyList_New, PyList_SET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyObject_Hash
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #include <structmember.h>

    /* Where an object keeps the value of a slot; -1: the descriptor is none of a slot. */
    static Py_ssize_t slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return (Py_ssize_t)((PyMemberDescrObject *)descriptor)->d_member->offset;
    }

    /* Set a slot to a number; takes the place of the slot from slot_offset. */
    static int set_slot(PyObject *object, Py_ssize_t offset, Py_ssize_t number) {
        PyObject **place = (PyObject **)((char *)object + offset);
        PyObject *before = *place, *after = PyLong_FromSsize_t(number);
        if (after == NULL) return -1;
        *place = after;
        Py_XDECREF(before);
        return 0;
    }

    /* Call a function with two arguments, or with the first alone; NULL if it raises. */
    static PyObject *call(PyObject *function, PyObject *first, PyObject *second) {
        PyObject *arguments[3] = {NULL, first, second};
        size_t count = second == NULL ? 1 : 2;
        return PyObject_Vectorcall(function, arguments + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    }

    /* The exception that was raised, with its traceback. */
    static PyObject *raised(void) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyErr_GetRaisedException();
    #else
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (traceback != NULL) PyException_SetTraceback(value, traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
        return value;
    #endif
    }

    /* Whether two strings that are no subclasses of str are equal. */
    static int same_text(PyObject *one, PyObject *other) {
        if (one == other) return 1;
        Py_ssize_t length = PyUnicode_GET_LENGTH(one);
        int kind = PyUnicode_KIND(one);
        if (length != PyUnicode_GET_LENGTH(other) || kind != (int)PyUnicode_KIND(other)) return 0;
        return memcmp(PyUnicode_DATA(one), PyUnicode_DATA(other), (size_t)length * (size_t)kind) == 0;
    }

    /* The first eight bytes of a text, or all of it. */
    static inline uint64_t first_bytes(const unsigned char *text, size_t length) {
        uint64_t word = 0;
        uint32_t low, high;
        if (length >= 8) {
            memcpy(&word, text, 8);
        } else if (length >= 4) {
            memcpy(&low, text, 4);
            memcpy(&high, text + length - 4, 4);
            word = (uint64_t)low | (uint64_t)high << (8 * (length - 4));
        } else if (length > 0) {
            word = text[0] | (uint64_t)text[length / 2] << (8 * (length / 2));
            word |= (uint64_t)text[length - 1] << (8 * (length - 1));
        }
        return word;
    }

    /* A number for a text whose first eight bytes are known; the seed is unknown to whoever may have chosen it. */
    static inline uint64_t text_hash(const unsigned char *text, size_t length, uint64_t begin, uint64_t seed) {
        uint64_t result = seed ^ (length * UINT64_C(0x9E3779B97F4A7C15)), word = begin;
        result = (result ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
        result ^= result >> 32;
        while (length > 8) {
            text += 8, length -= 8;
            word = first_bytes(text, length);
            result = (result ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
            result ^= result >> 32;
        }
        result *= UINT64_C(0x94D049BB133111EB);
        return result ^ (result >> 29);
    }

    static inline int is_ascii(PyObject *text) { return PyUnicode_IS_COMPACT_ASCII(text); }

    static inline const void *text_data(PyObject *text) { return PyUnicode_DATA(text); }

    static void prefetch(const void *place) {
    #if defined(__GNUC__)
        __builtin_prefetch(place, 1);
    #endif
    }
    """
    uint64_t first_bytes(const unsigned char *text, size_t length) noexcept
    int is_ascii(PyObject *text) noexcept
    const void *text_data(PyObject *text) noexcept
    void prefetch(const void *place) noexcept
    uint64_t text_hash(const unsigned char *text, size_t length, uint64_t begin, uint64_t seed) noexcept
    Py_ssize_t slot_offset(object descriptor)
    int set_slot(object thing, Py_ssize_t offset, Py_ssize_t number) except -1
    PyObject *call(PyObject *function, PyObject *first, PyObject *second)
    object raised()
    int same_text(PyObject *one, PyObject *other)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *length) noexcept
    object PyUnicode_DecodeUTF8(const char *text, Py_ssize_t length, const char *errors)
    void PyErr_Clear()
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    Py_ssize_t Py_REFCNT(PyObject *thing)
    void Py_DECREF(PyObject *thing)
    void Py_XDECREF(PyObject *thing)
    Py_ssize_t PyList_GET_SIZE(PyObject *values)
    PyObject *PyList_GET_ITEM(PyObject *values, Py_ssize_t place)
    PyObject *PyTuple_GET_ITEM(PyObject *values, Py_ssize_t place)
    int PyList_CheckExact(PyObject *thing)
    int PyTuple_CheckExact(PyObject *thing)
    int PyGen_CheckExact(PyObject *thing)
    PyObject *PyDict_GetItemWithError(object mapping, object key) except? NULL

cdef Py_ssize_t FIRST_ROOM = 1024
cdef uint64_t SEED = <uint64_t><size_t>&FIRST_ROOM * <uint64_t>0x9E3779B97F4A7C15
"""Where this module is in memory: unknown to whoever chooses words."""
cdef uint32_t NOT_ASCII = <uint32_t>1 << 31
cdef Py_ssize_t MOST = 0x7FFFFFFF

cdef enum:
    BLOCK = 64
    AHEAD = 16

cdef struct Known:
    uint64_t begin
    uint32_t length
    int32_t code


cdef Known *new_table(Py_ssize_t size) except NULL:
    cdef Known *table = <Known *>PyMem_Realloc(NULL, <size_t>size * sizeof(Known))
    if table == NULL:
        raise MemoryError
    memset(table, 0xFF, <size_t>size * sizeof(Known))
    return table


cdef void *more_room(void *begin, size_t nbytes) except NULL:
    cdef void *found = PyMem_Realloc(begin, nbytes)
    if found == NULL:
        raise MemoryError
    return found


cdef const unsigned char *utf8_of(object key, size_t *length) noexcept:
    """The UTF-8 of a string, as long as it lives; NULL if it has none."""
    cdef Py_ssize_t found
    cdef const char *text
    if is_ascii(<PyObject *>key):
        length[0] = <size_t>PyUnicode_GET_LENGTH(key)
        return <const unsigned char *>text_data(<PyObject *>key)
    text = PyUnicode_AsUTF8AndSize(key, &found)
    if text == NULL:
        PyErr_Clear()
        return NULL
    length[0] = <size_t>found
    return <const unsigned char *>text


cdef class Column:
    """The values of one field, one after the other; strings may be held as numbers of distinct strings.

    As long as all values are strings (no subclass of str), a coded column holds a number for each; the numbers are in
    the order in which the strings came first, as those of ``pyarrow.Array.dictionary_encode``. With the first value of
    another type it becomes a plain list.

    The table of known strings has the first eight bytes of an ASCII string and its length, so that a short one is
    compared without its object, which may be far away; of any other string it has Python's hash. Codes in the table
    begin at ``base``: what is below is of an earlier frame, and counts as empty, so that nothing needs to be cleared.
    The text of a distinct string is copied when it comes first, while it is near.
    """

    cdef list values
    cdef bint coded, codes_wanted, has_text
    cdef list distinct
    cdef int32_t base
    cdef int32_t *offsets
    cdef Py_ssize_t offset_room
    cdef unsigned char *text
    cdef Py_ssize_t text_room
    cdef int32_t *codes
    cdef Py_ssize_t count, room
    cdef Known *table
    cdef Py_ssize_t size

    def __cinit__(self, bint coded):
        self.codes = self.offsets = NULL
        self.text = NULL
        self.table = NULL
        self.codes_wanted = coded
        self.begin()

    def __dealloc__(self):
        PyMem_Free(self.codes)
        PyMem_Free(self.offsets)
        PyMem_Free(self.text)
        PyMem_Free(self.table)

    cdef int begin(self) except -1:
        """Begin again, without values."""
        cdef list before = self.values, known = self.distinct or []  # dropped at the end: that may run user code
        self.values, self.distinct = [], []
        self.coded = self.has_text = self.codes_wanted
        self.count = 0
        if self.coded:
            if self.table == NULL or 32 * (len(known) + FIRST_ROOM) < self.size or self.base > MOST // 2:
                self.coded = False  # if there is no memory for a table, it is a plain list
                PyMem_Free(self.table)
                self.table = NULL
                self.table, self.size, self.base = new_table(FIRST_ROOM), FIRST_ROOM, 0
                self.coded = True
            else:
                self.base += <int32_t>len(known)
        return 0

    cdef int append(self, PyObject *value) except -1:
        """Append a value."""
        if not self.coded:
            return PyList_Append(self.values, <object>value)
        if not PyUnicode_CheckExact(<object>value) or PyUnicode_GET_LENGTH(<object>value) >= NOT_ASCII:
            self.decode()
            return PyList_Append(self.values, <object>value)
        cdef Known key
        cdef Py_ssize_t place = self.place_of(value, &key)
        cdef Known *found
        while True:
            found = &self.table[place]
            if found.code < self.base:
                key.code = self.add(value, place, &key)
                break
            if found.begin == key.begin and found.length == key.length:
                key.code = found.code - self.base
                if key.length <= 8 or same_text(PyList_GET_ITEM(<PyObject *>self.distinct, key.code), value):
                    break
            place = (place + 1) & (self.size - 1)
        if self.count == self.room:
            self.make_room()
        self.codes[self.count] = key.code
        self.count += 1
        return 0

    cdef Py_ssize_t place_of(self, PyObject *value, Known *key) except -1:
        """Where the search for a string begins; ``key`` gets what the table has of it, but for its number."""
        cdef const unsigned char *text
        cdef size_t length = <size_t>PyUnicode_GET_LENGTH(<object>value)
        if is_ascii(value):
            text = <const unsigned char *>text_data(value)
            key.begin, key.length = first_bytes(text, length), <uint32_t>length
            return <Py_ssize_t>(text_hash(text, length, key.begin, SEED) & <uint64_t>(self.size - 1))
        key.begin, key.length = <uint64_t>PyObject_Hash(<object>value), NOT_ASCII | <uint32_t>length
        return <Py_ssize_t>(key.begin & <uint64_t>(self.size - 1))

    cdef int32_t add(self, PyObject *value, Py_ssize_t place, Known *key) except -1:
        """Add a string that is not known yet, at the place where its search ended; its number."""
        cdef int32_t code = <int32_t>len(self.distinct), other
        cdef Known *larger
        cdef Known moved
        if self.has_text:
            self.copy(<object>value, code)
        if 2 * <Py_ssize_t>code < self.size:
            self.distinct.append(<object>value)
            self.table[place] = key[0]
            self.table[place].code = self.base + code
            return code
        larger = new_table(4 * self.size)
        try:
            self.distinct.append(<object>value)
        except MemoryError:
            PyMem_Free(larger)
            raise
        PyMem_Free(self.table)
        self.table, self.size, self.base = larger, 4 * self.size, 0
        for other in range(code + 1):
            place = self.place_of(PyList_GET_ITEM(<PyObject *>self.distinct, other), &moved)
            while self.table[place].code >= 0:
                place = (place + 1) & (self.size - 1)
            self.table[place] = moved
            self.table[place].code = other
        return code

    cdef int copy(self, object value, int32_t code) except -1:
        """Copy the text of a string that is not known yet; nothing of it counts before the string is known."""
        cdef size_t length
        cdef const unsigned char *text = utf8_of(value, &length)
        cdef Py_ssize_t end, room
        if code + 1 >= self.offset_room:
            room = max(FIRST_ROOM, 2 * self.offset_room)
            self.offsets = <int32_t *>more_room(self.offsets, <size_t>room * sizeof(int32_t))
            self.offset_room = room
        if code == 0:
            self.offsets[0] = 0
        if text == NULL or self.offsets[code] + <Py_ssize_t>length > MOST:
            self.has_text = False
            return 0
        end = self.offsets[code] + <Py_ssize_t>length
        if end > self.text_room:
            room = max(16 * FIRST_ROOM, 2 * end)
            self.text = <unsigned char *>more_room(self.text, <size_t>room)
            self.text_room = room
        memcpy(self.text + self.offsets[code], text, length)
        self.offsets[code + 1] = <int32_t>end
        return 0

    cdef int make_room(self) except -1:
        cdef Py_ssize_t room = max(FIRST_ROOM, 2 * self.room)
        cdef int32_t *codes = <int32_t *>PyMem_Realloc(self.codes, <size_t>room * sizeof(int32_t))
        if codes == NULL:
            raise MemoryError
        self.codes, self.room = codes, room
        return 0

    cdef int decode(self) except -1:
        """Become a plain list. Nothing here makes an object: that could run user code, which could emit."""
        cdef Py_ssize_t row
        self.coded = False
        for row in range(self.count):
            PyList_Append(self.values, <object>PyList_GET_ITEM(<PyObject *>self.distinct, self.codes[row]))
        return 0

    cdef object result(self, Py_ssize_t until):
        """The first values: a list; or (codes as bytes of int32, distinct strings, their text).

        The text is None if a string has no UTF-8, or if all are longer than 2 GiB; otherwise it is (where each begins
        and ends, as bytes of int32[strings + 1]; UTF-8).
        """
        cdef Py_ssize_t known = len(self.distinct) if self.coded else 0
        text = None
        if not self.coded:
            del self.values[until:]
            return self.values
        if self.has_text and known:
            text = (
                PyBytes_FromStringAndSize(<char *>self.offsets, (known + 1) * <Py_ssize_t>sizeof(int32_t)),
                PyBytes_FromStringAndSize(<char *>self.text, self.offsets[known]),
            )
        codes = PyBytes_FromStringAndSize(<char *>self.codes, until * <Py_ssize_t>sizeof(int32_t))
        return codes, self.distinct, text


ctypedef fused Code:
    uint16_t
    int32_t


cdef list spread_codes(list distinct, Code *codes, Py_ssize_t count):
    cdef list values = PyList_New(count)
    cdef Py_ssize_t row, known = len(distinct)
    cdef object value
    for row in range(count):
        if not 0 <= codes[row] < known:
            raise IndexError(f"there is no value with number {codes[row]}: expected less than {known}")
        value = <object>PyList_GET_ITEM(<PyObject *>distinct, codes[row])
        Py_INCREF(value)
        PyList_SET_ITEM(values, row, value)
    return values


cdef class RowBuffer:
    """Emissions one by one: their values, column by column, and the input row that each is anchored to.

    Reference: ``sparkbolt.worker.emissions.RowBuffer``.
    """

    cdef Py_ssize_t width, declared
    cdef bint collected
    cdef object stream, otherwise
    cdef tuple columns
    cdef Column first
    cdef readonly Py_ssize_t count
    cdef int64_t *parents
    cdef int64_t row
    cdef Py_ssize_t room

    def __cinit__(self, coded, bint collected):
        """Begin empty, and closed for ``emit``.

        Args:
            coded: for each field, whether its strings are held as numbers of distinct strings.
            collected: whether emissions are kept; otherwise they are only counted.
        """
        self.collected = collected
        self.parents = NULL
        self.columns = tuple([Column(flag) for flag in coded])
        self.declared = len(self.columns)
        self.first = self.columns[0] if self.declared else None
        self.width = -1
        self.count = self.room = self.row = 0

    def __dealloc__(self):
        PyMem_Free(self.parents)

    def gated(self, stream, otherwise):
        """A fast ``emit``, and the gate that opens and closes it.

        Args:
            stream: the default of its argument ``stream``.
            otherwise: called with its arguments if they are not what is usual.
        """
        self.stream, self.otherwise = stream, otherwise
        return self.emit, self.open

    def open(self, bint is_open):
        """Accept emissions by ``emit``, or refuse them."""
        self.width = self.declared if is_open else -1

    def emit(self, values, stream="default", anchors=None):
        """Emit a tuple, anchored to the row that user code sees; see ``BasicCollector.emit``."""
        if stream is self.stream and anchors is None and self.fits(values):
            self.append(values, self.row)
        else:
            self.otherwise(values, stream, anchors)

    def push(self, values, int64_t parent):
        """Append values, a list or tuple, that are anchored to a row."""
        values = tuple(values)  # a copy: what was checked in Python may be of an odd class, or have changed
        if len(<tuple>values) != self.declared:
            raise ValueError("the values of a tuple have changed while it was emitted")
        self.append(values, parent)

    cdef bint fits(self, object values):
        """Whether values can be emitted as they are: a list or tuple of the right length."""
        cdef PyObject *row = <PyObject *>values
        if PyList_CheckExact(row):
            return len(<list>values) == self.width
        return PyTuple_CheckExact(row) and len(<tuple>values) == self.width

    cdef int append(self, object values, int64_t parent) except -1:
        cdef PyObject *row = <PyObject *>values
        cdef Py_ssize_t field, room
        cdef bint is_list = PyList_CheckExact(row)
        if not self.collected:
            self.count += 1
            return 0
        if self.count == self.room:
            room = max(FIRST_ROOM, 2 * self.room)
            self.parents = <int64_t *>more_room(self.parents, <size_t>room * sizeof(int64_t))
            self.room = room
        if self.declared == 1:
            self.first.append(PyList_GET_ITEM(row, 0) if is_list else PyTuple_GET_ITEM(row, 0))
        else:
            for field in range(self.declared):
                (<Column>self.columns[field]).append(
                    PyList_GET_ITEM(row, field) if is_list else PyTuple_GET_ITEM(row, field)
                )
        self.parents[self.count] = parent
        self.count += 1
        return 0

    def taken(self):
        """The columns, each as ``Column.result`` returns it; and the row of each emission, as bytes of int64."""
        parents = PyBytes_FromStringAndSize(<char *>self.parents, self.count * <Py_ssize_t>sizeof(int64_t))
        return [(<Column>column).result(self.count) for column in self.columns], parents

    def clear(self):
        """Forget everything; emissions are accepted or refused as before."""
        cdef Column column
        if self.collected and self.count:
            for column in self.columns:
                column.begin()
        self.count = 0


cdef struct Number:
    uint64_t begin
    int64_t value
    int64_t at
    uint32_t length
    int32_t change
    uint32_t hash
    bint there


cdef struct Place:
    uint32_t hash
    int32_t number


cdef struct Change:
    int64_t before
    int32_t number
    bint there_before


cdef struct Foreseen:
    PyObject *key
    size_t length
    uint64_t begin
    uint32_t hash


cdef class Ahead:
    """The keys of the next rows, and where they will be looked for."""

    cdef Foreseen slots[AHEAD]

    def __cinit__(self):
        memset(self.slots, 0, sizeof(self.slots))

    def __dealloc__(self):
        cdef Py_ssize_t slot
        for slot in range(AHEAD):
            Py_XDECREF(self.slots[slot].key)


cdef class TextNumbers:
    """Strings and their numbers, committed and uncommitted; reference: the dicts of ``keyvalue.KeyValueTable``.

    A key is a str (no subclass) without NUL that UTF-8 can encode, a value an int (no subclass) of 64 bits. Entries are
    in the order in which they came first, so frequent keys are close together. An uncommitted change has the value from
    before, and is undone by it.
    """

    cdef public bint current
    """Whether the newest committed changes are here."""
    cdef public bint complete
    """Whether all committed keys are here."""
    cdef Number *numbers
    cdef Py_ssize_t count, room, present
    cdef Place *places
    cdef Py_ssize_t size
    cdef Change *changes
    cdef Py_ssize_t changed, change_room
    cdef unsigned char *texts
    cdef Py_ssize_t used, text_room
    cdef object last_key
    cdef int32_t last

    def __cinit__(self):
        self.room = self.change_room = FIRST_ROOM
        self.text_room = 16 * FIRST_ROOM
        self.numbers = <Number *>more_room(NULL, <size_t>self.room * sizeof(Number))
        self.changes = <Change *>more_room(NULL, <size_t>self.change_room * sizeof(Change))
        self.texts = <unsigned char *>more_room(NULL, <size_t>self.text_room)
        self.size = 2 * FIRST_ROOM
        self.places = <Place *>more_room(NULL, <size_t>self.size * sizeof(Place))
        memset(self.places, 0xFF, <size_t>self.size * sizeof(Place))
        self.last = -1

    def __dealloc__(self):
        PyMem_Free(self.numbers)
        PyMem_Free(self.changes)
        PyMem_Free(self.texts)
        PyMem_Free(self.places)

    def __len__(self):
        """How many keys there are."""
        return self.present

    cdef int32_t find(self, const unsigned char *text, size_t length, uint64_t begin, uint32_t hash) noexcept:
        """The number of the entry with this text; -1: there is none."""
        cdef Py_ssize_t mask = self.size - 1, at = <Py_ssize_t>hash & mask
        cdef Place *place
        cdef Number *found
        while True:
            place = &self.places[at]
            if place.number < 0:
                return -1
            if place.hash == hash:
                found = &self.numbers[place.number]
                if found.begin == begin and found.length == length:
                    if length <= 8 or memcmp(self.texts + found.at, text, length) == 0:
                        return place.number
            at = (at + 1) & mask

    cdef int32_t add(self, const unsigned char *text, size_t length, uint64_t begin, uint32_t hash) except -1:
        """Add an entry that is not there yet, in neither sense; its number."""
        cdef int32_t number = <int32_t>self.count
        cdef Number *fresh
        if self.count >= MOST:
            raise MemoryError("a key-value state has too many keys in one task")
        if self.count == self.room:
            self.numbers = <Number *>more_room(self.numbers, 2 * <size_t>self.room * sizeof(Number))
            self.room *= 2
        while self.used + <Py_ssize_t>length > self.text_room:
            self.texts = <unsigned char *>more_room(self.texts, 2 * <size_t>self.text_room)
            self.text_room *= 2
        if 5 * self.count >= 3 * self.size:
            self.grow()
        memcpy(self.texts + self.used, text, length)
        fresh = &self.numbers[number]
        fresh.begin, fresh.value, fresh.at, fresh.length = begin, 0, self.used, <uint32_t>length
        fresh.change, fresh.hash, fresh.there = -1, hash, False
        self.used += <Py_ssize_t>length
        self.count += 1
        self.put_place(hash, number)
        return number

    cdef void put_place(self, uint32_t hash, int32_t number) noexcept:
        cdef Py_ssize_t mask = self.size - 1, at = <Py_ssize_t>hash & mask
        while self.places[at].number >= 0:
            at = (at + 1) & mask
        self.places[at].hash, self.places[at].number = hash, number

    cdef int grow(self) except -1:
        cdef Place *larger = <Place *>more_room(NULL, 2 * <size_t>self.size * sizeof(Place))
        cdef Py_ssize_t number
        PyMem_Free(self.places)
        self.places, self.size = larger, 2 * self.size
        memset(self.places, 0xFF, <size_t>self.size * sizeof(Place))
        for number in range(self.count):
            self.put_place(self.numbers[number].hash, <int32_t>number)
        return 0

    cdef int32_t number_of(self, object key) noexcept:
        """The number of a string's entry; -1: there is none; -2: it is no key that could be here."""
        cdef size_t length
        cdef uint64_t begin
        cdef const unsigned char *text
        if key is self.last_key:
            return self.last
        text = utf8_of(key, &length)
        if text == NULL:
            return -2
        begin = first_bytes(text, length)
        self.last = self.find(text, length, begin, <uint32_t>text_hash(text, length, begin, SEED))
        self.last_key = key
        return self.last

    cdef void foresee(self, PyObject *key, Foreseen *slot) noexcept:
        """Note where a string will be looked for, and ask memory for it; nothing for what is no string in ASCII."""
        cdef const unsigned char *text
        Py_XDECREF(slot.key)
        slot.key = NULL
        if not PyUnicode_CheckExact(<object>key) or not is_ascii(key):
            return
        text = <const unsigned char *>text_data(key)
        slot.length = <size_t>PyUnicode_GET_LENGTH(<object>key)
        slot.begin = first_bytes(text, slot.length)
        slot.hash = <uint32_t>text_hash(text, slot.length, slot.begin, SEED)
        slot.key = key
        Py_INCREF(<object>key)
        prefetch(&self.places[<Py_ssize_t>slot.hash & (self.size - 1)])

    cdef void foresee_number(self, Foreseen *slot) noexcept:
        """Ask memory for the entry that a noted string probably has."""
        cdef Place *place = &self.places[<Py_ssize_t>slot.hash & (self.size - 1)]
        if slot.key != NULL and place.number >= 0:
            prefetch(&self.numbers[place.number])

    cdef void look_up(self, PyObject *key, Foreseen *slot) noexcept:
        """Have the number of a string at hand, if it was noted."""
        if slot.key != key or key == NULL:
            return
        self.last = self.find(<const unsigned char *>text_data(key), slot.length, slot.begin, slot.hash)
        self.last_key = <object>key

    cdef bint set(self, object key, object value) except -1:
        """Set the value of a string without committing it; returns whether key and value can be here."""
        cdef int overflow
        cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
        cdef int32_t entry
        cdef size_t length
        cdef const unsigned char *text
        cdef uint64_t begin
        if overflow:
            return False
        entry = self.number_of(key)
        if entry == -2:
            return False
        if entry == -1:
            text = utf8_of(key, &length)
            if <Py_ssize_t>length >= MOST or memchr(text, 0, length) != NULL:
                return False
            begin = first_bytes(text, length)
            entry = self.last = self.add(text, length, begin, <uint32_t>text_hash(text, length, begin, SEED))
        self.change(entry, number)
        return True

    cdef int change(self, int32_t entry, int64_t value) except -1:
        cdef Number *of = &self.numbers[entry]
        if of.change < 0:
            if self.changed == self.change_room:
                self.changes = <Change *>more_room(self.changes, 2 * <size_t>self.change_room * sizeof(Change))
                self.change_room *= 2
            of.change = <int32_t>self.changed
            self.changes[self.changed].before = of.value
            self.changes[self.changed].number = entry
            self.changes[self.changed].there_before = of.there
            self.changed += 1
            if not of.there:
                of.there = True
                self.present += 1
        of.value = value
        return 0

    def find_value(self, key):
        """The value of a key; None: there is none; False: it is no key that could be here."""
        cdef int32_t number
        if not PyUnicode_CheckExact(key):
            return False
        number = self.number_of(key)
        if number >= 0 and self.numbers[number].there:
            return self.numbers[number].value
        return False if number == -2 else None

    def get_many(self, list keys, default):
        """The values of keys, ``default`` for those that are not here; None if a key cannot be here."""
        cdef list found = []
        cdef int32_t number
        for key in keys:
            number = self.number_of(key) if PyUnicode_CheckExact(key) else -2
            if number == -2:
                return None
            found.append(self.numbers[number].value if number >= 0 and self.numbers[number].there else default)
        return found

    def without_committed(self, list keys):
        """Those of the keys that have no committed value here."""
        cdef list found = []
        cdef int32_t number
        cdef Number *of
        for key in keys:
            number = self.number_of(key) if PyUnicode_CheckExact(key) else -2
            if number >= 0:
                of = &self.numbers[number]
                if of.there if of.change < 0 else self.changes[of.change].there_before:
                    continue
            found.append(key)
        return found

    def apply(self, const int32_t[::1] offsets, const unsigned char[::1] data, const int64_t[::1] values, bint newer):
        """Take committed values.

        Args:
            offsets: int32[rows + 1], ascending: where each key begins and ends.
            data: the keys.
            values: int64[rows].
            newer: whether they replace what is committed here; otherwise they are older.
        """
        cdef Py_ssize_t rows = len(values), first, until, row
        cdef int32_t number
        cdef uint64_t begins[BLOCK]
        cdef uint32_t hashes[BLOCK]
        cdef size_t length
        cdef const unsigned char *base = &data[0] if len(data) else NULL
        cdef const unsigned char *text
        cdef Number *of
        cdef Place *place
        self.last_key, self.last = None, -1
        for first in range(0, rows, BLOCK):
            until = min(rows, first + BLOCK)
            for row in range(first, until):
                length = <size_t>(offsets[row + 1] - offsets[row])
                text = base + offsets[row]
                begins[row - first] = first_bytes(text, length)
                hashes[row - first] = <uint32_t>text_hash(text, length, begins[row - first], SEED)
                prefetch(&self.places[<Py_ssize_t>hashes[row - first] & (self.size - 1)])
            for row in range(first, until):
                place = &self.places[<Py_ssize_t>hashes[row - first] & (self.size - 1)]
                if place.number >= 0:
                    prefetch(&self.numbers[place.number])
            for row in range(first, until):
                length = <size_t>(offsets[row + 1] - offsets[row])
                text = base + offsets[row]
                number = self.find(text, length, begins[row - first], hashes[row - first])
                if number < 0:
                    number = self.add(text, length, begins[row - first], hashes[row - first])
                of = &self.numbers[number]
                if of.change >= 0:
                    if newer or not self.changes[of.change].there_before:
                        self.changes[of.change].before = values[row]
                        self.changes[of.change].there_before = True
                elif newer or not of.there:
                    self.present += not of.there
                    of.value, of.there = values[row], True

    def undo(self):
        """Forget what is not committed."""
        cdef Py_ssize_t row
        cdef Number *of
        for row in range(self.changed):
            of = &self.numbers[self.changes[row].number]
            of.value, of.there, of.change = self.changes[row].before, self.changes[row].there_before, -1
            self.present -= not of.there
        self.changed = 0

    def commit(self):
        """What was not committed is, from now on."""
        cdef Py_ssize_t row
        for row in range(self.changed):
            self.numbers[self.changes[row].number].change = -1
        self.changed = 0

    @property
    def uncommitted(self):
        """How many keys have a value that is not committed."""
        return self.changed

    @property
    def entries(self):
        """How many keys have room here, also those that are not there any more."""
        return self.count

    @property
    def fresh(self):
        """How many of these have no committed value here."""
        cdef Py_ssize_t row, found = 0
        for row in range(self.changed):
            found += not self.changes[row].there_before
        return found

    def changes_of(self):
        """What is not committed, in the order in which it was put first.

        Returns:
                The bytes of int32[rows + 1], where each key begins and ends; the keys; and the bytes of int64[rows], their
            values. None if the keys are longer than 2 GiB.
        """
        cdef Py_ssize_t row, ahead, total = 0
        cdef Number *of
        offsets_bytes = PyBytes_FromStringAndSize(NULL, (self.changed + 1) * <Py_ssize_t>sizeof(int32_t))
        values_bytes = PyBytes_FromStringAndSize(NULL, self.changed * <Py_ssize_t>sizeof(int64_t))
        cdef int32_t *offsets = <int32_t *>PyBytes_AS_STRING(offsets_bytes)
        cdef int64_t *values = <int64_t *>PyBytes_AS_STRING(values_bytes)
        for row in range(self.changed):
            if row + 16 < self.changed:
                prefetch(&self.numbers[self.changes[row + 16].number])
            of = &self.numbers[self.changes[row].number]
            if total + of.length + self.changed >= MOST:  # with a NUL behind each
                return None
            offsets[row] = <int32_t>total
            values[row] = of.value
            total += of.length
        offsets[self.changed] = <int32_t>total
        data_bytes = PyBytes_FromStringAndSize(NULL, total)
        cdef char *data = PyBytes_AS_STRING(data_bytes)
        for row in range(self.changed):
            if row + 16 < self.changed:
                ahead = self.numbers[self.changes[row + 16].number].at
                prefetch(self.texts + ahead)
            of = &self.numbers[self.changes[row].number]
            memcpy(data + offsets[row], self.texts + of.at, of.length)
        return offsets_bytes, data_bytes, values_bytes

    cdef object key_of(self, Number *of):
        return PyUnicode_DecodeUTF8(<const char *>self.texts + of.at, of.length, NULL)

    def keys(self):
        """All keys that there are."""
        return [self.key_of(&self.numbers[number]) for number in range(self.count) if self.numbers[number].there]

    def content(self):
        """All committed values, and all that are not committed; two dicts."""
        cdef Py_ssize_t number
        cdef Number *of
        cdef Change *change
        cdef dict committed = {}, uncommitted = {}
        for number in range(self.count):
            of = &self.numbers[number]
            if of.change < 0 and of.there:
                committed[self.key_of(of)] = of.value
            elif of.change >= 0 and self.changes[of.change].there_before:
                committed[self.key_of(of)] = self.changes[of.change].before
        for number in range(self.changed):
            of = &self.numbers[self.changes[number].number]
            uncommitted[self.key_of(of)] = of.value
        return committed, uncommitted


cdef class KeyValues:
    """``get`` and ``put`` of a key-value state; reference: ``sparkbolt.worker.state.keyvalue.KeyValueTable``."""

    cdef object dirty, committed, put_otherwise, gone
    cdef public TextNumbers numbers
    """Where keys and values are, as long as all are strings and numbers; None: they are in dicts."""

    def __init__(self, dirty, committed, put_otherwise, gone):
        """Read and write uncommitted values.

        Args:
            dirty: a dict, key to uncommitted value.
            committed: called with a key that has no uncommitted value; returns its committed value, or ``gone``.
            put_otherwise: called with a key and a value that ``numbers`` does not take.
            gone: stands for the value of a key that does not exist.
        """
        if not isinstance(dirty, dict):
            raise TypeError("uncommitted values are in a dict")
        self.dirty, self.committed, self.put_otherwise, self.gone = dirty, committed, put_otherwise, gone

    def get(self, key, default=None):
        """The value of a key, or ``default``."""
        cdef PyObject *found
        cdef object value
        cdef int32_t number
        cdef TextNumbers numbers = self.numbers
        if numbers is None:
            found = PyDict_GetItemWithError(self.dirty, key)
            value = <object>found if found != NULL else self.committed(key)
            return default if value is self.gone else value
        if PyUnicode_CheckExact(key):
            number = numbers.number_of(key)
            if number >= 0 and numbers.numbers[number].there:
                if numbers.current or numbers.numbers[number].change >= 0:
                    return numbers.numbers[number].value
            elif number != -2 and numbers.complete:
                return default
        value = self.committed(key)
        return default if value is self.gone else value

    def put(self, key, value):
        """Set the value of a key."""
        if self.numbers is None:
            PyDict_SetItem(self.dirty, key, value)
        elif not (PyUnicode_CheckExact(key) and PyLong_CheckExact(value) and self.numbers.set(key, value)):
            self.put_otherwise(key, value)

    def put_many(self, list keys, list values):
        """Put values into ``numbers``, up to the first that cannot be there; returns whether all are."""
        for key, value in zip(keys, values):
            if self.numbers is None:
                return False
            if not (PyUnicode_CheckExact(key) and PyLong_CheckExact(value) and self.numbers.set(key, value)):
                return False
        return True

    def leave(self, dict values):
        """Move what is in ``numbers`` to dicts, if it still is; no other thread runs meanwhile.

        Args:
            values: gets what is committed.
        """
        if self.numbers is not None:
            committed, uncommitted = self.numbers.content()
            values.update(committed)
            self.dirty.update(uncommitted)
            self.numbers = None


cdef inline object value_at(PyObject *column, Py_ssize_t row):
    """A value of a list, which user code may have made shorter."""
    if row >= PyList_GET_SIZE(column):
        raise IndexError("the values of a row were removed while their frame was worked on")
    return <object>PyList_GET_ITEM(column, row)


def run_rows(
    RowBuffer emitted,
    tuple columns,
    tuple names,
    Py_ssize_t count,
    object slot,
    object renew,
    object execute,
    object collector,
    object emit_returned,
    object failed,
    list kept,
    KeyValues state,
):
    """Call user code for each row; reference: ``sparkbolt.worker.tasks.RowLoop._each``.

    Args:
        emitted: what the task emits on its default stream; None if it has none.
        columns: for each field, the list of its values.
        names: the fields.
        count: how many rows there are.
        slot: the descriptor of the tuple's slot for the number of its row.
        renew: called with the first row, and with each row before which user code has kept the tuple; returns a tuple
            that shows the row.
        execute: user code. With a collector it is called with the tuple and the collector; without one, with the tuple
            alone, and a generator that it returns is emitted.
        collector: the collector, or None.
        emit_returned: called with what user code returned, if it is neither None nor emitted already.
        failed: called with a row and the exception that user code raised; returns whether the rest is not tried.
        kept: gets the tuples that user code has kept.
        state: the state that user code may ask for values of its rows, or None. It decides nothing: once user code was
            seen to use a field's value as a key, the keys of later rows are asked for ahead of their use, since
            otherwise each would wait for memory.
    """
    cdef Py_ssize_t row, field, offset = slot_offset(slot), width = len(names), alone
    cdef PyObject *returned
    cdef PyObject *second = <PyObject *>collector if collector is not None else NULL
    cdef PyObject *called = <PyObject *>execute
    cdef bint stop = False
    cdef object tup = renew(0)
    cdef object name = names[0] if width == 1 else None
    cdef PyObject *single = <PyObject *>columns[0] if width == 1 else NULL
    cdef PyObject *keys = NULL
    cdef Ahead ahead = Ahead() if state is not None else None
    if offset < 0:
        raise TypeError("the tuple has no slot of that name")
    alone = Py_REFCNT(<PyObject *>tup)
    for row in range(count):
        if Py_REFCNT(<PyObject *>tup) != alone:
            kept.append(tup)
            tup = renew(row)
        if single != NULL:
            PyDict_SetItem(tup, name, value_at(single, row))
        else:
            for field in range(width):
                PyDict_SetItem(tup, names[field], value_at(<PyObject *>columns[field], row))
        set_slot(tup, offset, row)
        if emitted is not None:
            emitted.row = row
        if keys != NULL:
            look_ahead(state, keys, row, ahead.slots)
        returned = call(called, <PyObject *>tup, second)
        if returned == NULL:
            stop = failed(row, raised())
        elif returned == <PyObject *>None:
            Py_DECREF(returned)
        else:
            stop = emit_or_fail(emitted, returned, second == NULL, emit_returned, failed, row)
        if stop:
            break
        if row < BLOCK and keys == NULL and state is not None:
            keys = keys_among(state, columns, row)
    if Py_REFCNT(<PyObject *>tup) != alone:
        kept.append(tup)


cdef PyObject *keys_among(KeyValues state, tuple columns, Py_ssize_t row) noexcept:
    """The column whose value user code has just used as a key; NULL: none."""
    cdef Py_ssize_t field
    cdef PyObject *column
    if state.numbers is not None and state.numbers.last_key is not None:
        for field in range(len(columns)):
            column = <PyObject *>columns[field]
            if row < PyList_GET_SIZE(column) and PyList_GET_ITEM(column, row) == <PyObject *>state.numbers.last_key:
                return column
    return NULL


cdef void look_ahead(KeyValues state, PyObject *keys, Py_ssize_t row, Foreseen *foreseen) noexcept:
    """Look up the key of a row, and ask memory for what later rows need."""
    cdef TextNumbers numbers = state.numbers
    cdef Py_ssize_t count = PyList_GET_SIZE(keys)
    if numbers is None or not numbers.current or row >= count:
        return
    numbers.look_up(PyList_GET_ITEM(keys, row), &foreseen[row % AHEAD])
    if row + 2 * AHEAD < count:
        prefetch(PyList_GET_ITEM(keys, row + 2 * AHEAD))
    if row + AHEAD < count:
        numbers.foresee(PyList_GET_ITEM(keys, row + AHEAD), &foreseen[row % AHEAD])
        numbers.foresee_number(&foreseen[(row + AHEAD // 2) % AHEAD])


cdef bint emit_or_fail(
    RowBuffer emitted, PyObject *returned, bint is_function, object emit_returned, object failed, Py_ssize_t row
) except -1:
    """Emit what user code returned, and drop it; returns whether the rest is not tried, since that raised."""
    cdef object error
    try:
        try:
            emit_what_returned(emitted, <object>returned, is_function, emit_returned)
        finally:
            Py_DECREF(returned)  # a generator that raised would hold the tuple
    except BaseException as raised_error:
        error = raised_error
    else:
        return False
    return failed(row, error)


cdef int emit_what_returned(RowBuffer emitted, object returned, bint is_function, object emit_returned) except -1:
    """Emit what user code returned."""
    if is_function and emitted is not None and PyGen_CheckExact(<PyObject *>returned):
        for values in returned:
            if emitted.fits(values):
                emitted.append(values, emitted.row)
            else:
                emitted.otherwise(values, emitted.stream, None)
    else:
        emit_returned(returned)
    return 0


def crc32s(const int32_t[::1] offsets, const unsigned char[::1] data, const uint32_t[::1] table):
    """``zlib.crc32`` of each text; reference: ``sparkbolt.base.text_arrays.crc32s``.

    Args:
        offsets: int32[rows + 1], ascending: where each text begins and ends.
        data: the texts.
        table: uint32[256], the CRC of each byte.

    Returns:
        The bytes of uint32[rows].
    """
    cdef Py_ssize_t rows = len(offsets) - 1, row
    cdef int32_t at
    cdef uint32_t crc
    found = PyBytes_FromStringAndSize(NULL, rows * <Py_ssize_t>sizeof(uint32_t))
    cdef uint32_t *crcs = <uint32_t *>PyBytes_AS_STRING(found)
    for row in range(rows):
        crc = <uint32_t>0xFFFFFFFF
        for at in range(offsets[row], offsets[row + 1]):
            crc = table[(crc ^ data[at]) & 255] ^ (crc >> 8)
        crcs[row] = ~crc
    return found


def texts_of(const int32_t[::1] offsets, const unsigned char[::1] data):
    """Strings; reference: ``pyarrow.StringArray.to_pylist``, of an array without nulls.

    Args:
        offsets: int32[rows + 1], ascending: where each text begins and ends.
        data: their UTF-8.
    """
    cdef Py_ssize_t rows = len(offsets) - 1, row
    cdef list found = PyList_New(rows)
    cdef const char *base = <const char *>&data[0] if len(data) else NULL
    for row in range(rows):
        if offsets[row] == offsets[row + 1]:
            text = ""
        else:
            text = PyUnicode_DecodeUTF8(base + offsets[row], offsets[row + 1] - offsets[row], NULL)
        Py_INCREF(text)
        PyList_SET_ITEM(found, row, text)
    return found


def spread(list distinct, const Code[::1] codes):
    """For each code, the value with that number: ``[distinct[code] for code in codes]``; codes: uint16 or int32."""
    return spread_codes(distinct, <Code *>&codes[0], len(codes)) if len(codes) else []


def encode_texts(const int32_t[::1] offsets, const unsigned char[::1] data, uint64_t seed):
    """Number the distinct texts of a column in the order in which they come first.

    Reference: ``pyarrow.StringArray.dictionary_encode``, of an array without nulls. The table of known texts has their
    first eight bytes in it, and is asked for ahead of its use, since otherwise each row would wait for memory.

    Args:
        offsets: int32[rows + 1], ascending: where each text begins and ends.
        data: the texts.
        seed: any number that nobody knows who may have chosen the texts.

    Returns:
        The number of each row's text, as bytes of int32[rows]; and the first row of each text, bytes of int32[texts].
    """
    cdef Py_ssize_t rows = len(offsets) - 1, row, first, until, size = FIRST_ROOM
    cdef int32_t code, texts = 0
    while 8 * size < rows:
        size *= 2
    cdef uint64_t begins[BLOCK]
    cdef Py_ssize_t places[BLOCK]
    cdef size_t length
    cdef const unsigned char *base = &data[0] if len(data) else NULL
    codes_bytes = PyBytes_FromStringAndSize(NULL, rows * <Py_ssize_t>sizeof(int32_t))
    firsts_bytes = PyBytes_FromStringAndSize(NULL, rows * <Py_ssize_t>sizeof(int32_t))
    cdef int32_t *codes = <int32_t *>PyBytes_AS_STRING(codes_bytes)
    cdef int32_t *firsts = <int32_t *>PyBytes_AS_STRING(firsts_bytes)
    cdef Known *table = new_table(size)
    try:
        for first in range(0, rows, BLOCK):
            until = min(rows, first + BLOCK)
            if 2 * (<Py_ssize_t>texts + BLOCK) > size:
                table = grown(table, size, &offsets[0], base, firsts, seed)
                size *= 2
            for row in range(first, until):
                length = <size_t>(offsets[row + 1] - offsets[row])
                begins[row - first] = first_bytes(base + offsets[row], length)
                places[row - first] = <Py_ssize_t>(
                    text_hash(base + offsets[row], length, begins[row - first], seed) & <uint64_t>(size - 1)
                )
                prefetch(&table[places[row - first]])
            for row in range(first, until):
                code = number(
                    table, size, places[row - first], begins[row - first], &offsets[0], base, firsts, row, texts
                )
                codes[row] = code
                if code == texts:
                    firsts[texts] = <int32_t>row
                    texts += 1
    finally:
        PyMem_Free(table)
    return codes_bytes, firsts_bytes[: texts * <Py_ssize_t>sizeof(int32_t)]


cdef inline int32_t number(
    Known *table, Py_ssize_t size, Py_ssize_t place, uint64_t begin, const int32_t *offsets,
    const unsigned char *base, const int32_t *firsts, Py_ssize_t row, int32_t fresh
) noexcept:
    """The number of a row's text; ``fresh``, which is added to the table, if it is not known."""
    cdef uint32_t length = <uint32_t>(offsets[row + 1] - offsets[row])
    cdef Known *found
    while True:
        found = &table[place]
        if found.code < 0:
            found.begin, found.length, found.code = begin, length, fresh
            return fresh
        if found.begin == begin and found.length == length:
            if length <= 8 or memcmp(base + offsets[firsts[found.code]], base + offsets[row], length) == 0:
                return found.code
        place = (place + 1) & (size - 1)


cdef Known *grown(
    Known *table, Py_ssize_t size, const int32_t *offsets, const unsigned char *base, const int32_t *firsts,
    uint64_t seed
) except NULL:
    """The same in a table of twice the size; the old one is freed."""
    cdef Known *larger = new_table(2 * size)
    cdef Known *known
    cdef Py_ssize_t old, place
    for old in range(size):
        known = &table[old]
        if known.code >= 0:
            place = <Py_ssize_t>(
                text_hash(base + offsets[firsts[known.code]], known.length, known.begin, seed) & <uint64_t>(2 * size - 1)
            )
            while larger[place].code >= 0:
                place = (place + 1) & (2 * size - 1)
            larger[place] = known[0]
    PyMem_Free(table)
    return larger


# Ids.


cdef inline uint64_t mixed(uint64_t x) noexcept:
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef inline uint64_t unmixed(uint64_t x) noexcept:
    x = (x ^ (x >> 31) ^ (x >> 62)) * <uint64_t>0x319642B2D24D8EC3
    x = (x ^ (x >> 27) ^ (x >> 54)) * <uint64_t>0x96DE1B173F119089
    return x ^ (x >> 30) ^ (x >> 60)


def mix(uint64_t[::1] ids):
    """Mix each number in place; reference: ``sparkbolt.base.ids.mix64``."""
    cdef Py_ssize_t place
    for place in range(len(ids)):
        ids[place] = mixed(ids[place])


def unmix(uint64_t[::1] ids):
    """The inverse of ``mix``; reference: ``sparkbolt.base.ids.unmix64``."""
    cdef Py_ssize_t place
    for place in range(len(ids)):
        ids[place] = unmixed(ids[place])


def edges_of_runs(
    const uint64_t[::1] parents, const Py_ssize_t[::1] starts, uint64_t first, uint64_t salt, uint64_t[::1] edges
):
    """The edges of deliveries, by runs with the same parent; reference: ``sparkbolt.base.ids.edges_of_runs``.

    Args:
        parents: uint64[runs], the parent's edge of each run.
        starts: intp[runs], ascending, the index of each run's first delivery; the first is 0.
        first: the ordinal of each run's first delivery.
        salt: what else the edges depend on.
        edges: uint64[deliveries], where they go.
    """
    cdef Py_ssize_t run, place = 0, end, runs = len(parents), count = len(edges)
    cdef uint64_t parent, step
    if len(starts) != runs or (count and (not runs or starts[0])):
        raise ValueError("each run has one parent, and the first one begins at 0")
    for run in range(runs):
        parent = parents[run] ^ salt
        step = first * <uint64_t>0x9E3779B97F4A7C15
        end = min(starts[run + 1], count) if run + 1 < runs else count
        while place < end:
            edges[place] = mixed(parent + step)
            step += <uint64_t>0x9E3779B97F4A7C15
            place += 1


def xor_of_runs(const uint64_t[::1] xors, const Py_ssize_t[::1] starts, uint64_t[::1] found):
    """The XOR of each run's numbers; reference: ``sparkbolt.base.ids.xor_of_runs``.

    Args:
        xors: uint64[n].
        starts: intp[runs], ascending, the index of each run's first number; the first is 0.
        found: uint64[runs], where they go.
    """
    cdef Py_ssize_t run, place = 0, end, runs = len(starts), count = len(xors)
    cdef uint64_t xor
    if len(found) != runs or (runs and starts[0]):
        raise ValueError("each run has one result, and the first one begins at 0")
    for run in range(runs):
        xor = 0
        end = min(starts[run + 1], count) if run + 1 < runs else count
        while place < end:
            xor ^= xors[place]
            place += 1
        found[run] = xor
